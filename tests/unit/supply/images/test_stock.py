"""Which files of the host a spec takes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design import spec
from winlab.errors import UsageError
from winlab.supply.images import digests, stock


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "spec"
    (made / "c-drive/deep").mkdir(parents=True)
    (made / "c-drive/deep/a.txt").write_text("a")
    (made / "b.txt").write_text("b")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("hunter2")
    return made


def load(folder: Path, text: str, *allow: Path) -> spec.Spec:
    (folder / "lab.yaml").write_text(text)
    return spec.load(str(folder / "lab.yaml"), allow=allow)


def test_a_link_out_of_the_folder_is_refused_unless_the_spec_may_read_its_target(folder: Path) -> None:
    (folder / "c-drive/link").symlink_to("../b.txt")
    assert len(stock.take(load(folder, "workers: {files: c-drive}")).files[folder / "c-drive"]) == 2
    (folder / "c-drive/link").unlink()
    (folder / "c-drive/link").symlink_to("../../private/key")
    with pytest.raises(UsageError, match="link out of the folder") as caught:
        stock.take(load(folder, "workers: {files: c-drive}"))
    assert str(folder.parent / "private") in caught.value.cure
    with pytest.raises(UsageError, match="link out of the folder"):  # the same for a folder that the user names
        stock.take(spec.load("1-1-1", [f"workers.files={folder}/c-drive"]))
    stock.take(load(folder, "workers: {files: c-drive}", folder.parent / "private"))


def test_a_folder_that_is_too_large_is_refused_before_a_file_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> str:
        raise AssertionError("a file was read")

    monkeypatch.setattr(digests, "sha256", read)
    with pytest.raises(UsageError, match="holds too much for nodes"):
        stock.take(spec.load("1-1-1", ["workers.files=/"]))
    with (folder / "c-drive/large").open("wb") as file:
        file.truncate(stock.MOST_BYTES)  # sparse
    with pytest.raises(UsageError, match="more than 8 GiB"):
        stock.take(load(folder, "workers: {files: c-drive}"))


def test_all_files_that_leave_the_host_are_known(folder: Path) -> None:
    (folder / "answer").mkdir()
    (folder / "answer/part.j2").touch()
    (folder / "answer/own.j2").write_text('{% include "part.j2" %}')
    rows = "{name: a, media: b.txt, scripts: [b.txt], files: c-drive}, {name: b, template: answer/own.j2}"
    found = stock.take(load(folder, f"kubernetes: {{source: .}}\nworkers: [{rows}, {{name: c, os: debian-13}}]"))
    assert [(str(one.path.relative_to(folder)), one.field, one.pool) for one in found.host_files] == [
        (".", "kubernetes.source", ""),
        ("b.txt", "workers.media", "a"),
        ("b.txt", "workers.scripts", "a"),
        ("c-drive/deep/a.txt", "workers.files", "a"),
        ("answer/own.j2", "workers.template", "b"),
        ("answer/part.j2", "workers.template", "b"),
    ]
