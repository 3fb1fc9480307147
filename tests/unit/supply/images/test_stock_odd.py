"""Files that an untrusted spec names, and that can't be read or are endless."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from winlab.design import spec
from winlab.errors import UsageError
from winlab.supply.images import digests, stock

LONG = "a" * 300


@pytest.fixture(autouse=True)
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path, *_: object) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(digests, "sha256", read)


def take(folder: Path, text: str) -> stock.Stock:
    (folder / "lab.yaml").write_text(text)
    return stock.take(spec.load(str(folder / "lab.yaml")))


@pytest.mark.parametrize(
    "field", ["media: {}", "drivers: {}", "openssh: {}", "scripts: [{}]", "files: {}", "extra_drivers: [{}]"]
)
class TestFields:
    def test_an_endless_name(self, field: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="can't be read"):
            take(tmp_path, f"workers: {{{field.format(LONG)}}}")

    def test_a_folder_without_access(self, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stat = os.stat

        def closed(path: object, **options: bool) -> os.stat_result:
            if "closed/" in str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return stat(path, **options)  # type: ignore[call-overload, no-any-return]

        monkeypatch.setattr(os, "stat", closed)
        with pytest.raises(UsageError, match="can't be read") as caught:
            take(tmp_path, f"workers: {{{field.format('closed/x')}}}")
        assert "Permission denied" in caught.value.why


@pytest.mark.parametrize("field", ["media: large", "drivers: large", "openssh: large", "scripts: [large]"])
def test_a_sparse_file_is_refused_before_it_is_read(field: str, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match="too large"):
        take(tmp_path, f"workers: {{{field}}}")


def test_an_unreadable_subfolder_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files/closed").mkdir(parents=True)
    walk = os.scandir

    def closed(path: str | Path) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return walk(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(UsageError, match="can't be read"):
        take(tmp_path, "workers: {files: files}")


def test_files_that_can_no_longer_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        stock._places({tmp_path / LONG: (stock.Material(name="x", sha256="0" * 64),)})


def test_a_template_that_refers_to_circular_links(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "own.j2").write_text('{% include "loop" %}')
    with pytest.raises(UsageError, match="can't be used"):
        stock.own_template(tmp_path / "own.j2")
