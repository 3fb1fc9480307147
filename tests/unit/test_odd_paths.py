"""Paths that lead nowhere, or to endless files: unknown homes, circular links, long names, pipes, devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from winlab import account
from winlab.cli.flags import SourceFlags
from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.errors import NotFoundError, UsageError
from winlab.events import Quiet
from winlab.operations import join, load
from winlab.supply import disk_format
from winlab.supply.artifacts.bundle.file import open_bundle
from winlab.supply.images import library, windows_media
from winlab.supply.media import inspection

NOBODY = "~nosuchuser/x"
LONG = "a" * 300


def test_the_home_of_an_unknown_user(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("workers: {count: 1}")
    for ask in (
        lambda: spec.load("1-1-1", iso=NOBODY),
        lambda: spec.load(str(tmp_path / "lab.yaml"), allow=[NOBODY]),
        lambda: SourceFlags(kubelet=[Path(NOBODY)]).origin,
        lambda: join.chosen(Path(NOBODY), "", "lab"),
        lambda: load.prepare(NOBODY, tmp_path, progress=Quiet()),
    ):
        with pytest.raises(UsageError, match=f"'{NOBODY}' can't be resolved"):
            ask()


def test_circular_links(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "lab.yaml").write_text("workers: {count: 1}")
    for ask in (
        lambda: spec.load("1-1-1", iso=loop),
        lambda: spec.load(str(tmp_path / "lab.yaml"), allow=[loop]),
        lambda: account.followed(loop),
    ):
        with pytest.raises(UsageError, match="can't be resolved"):
            ask()


def test_a_spec_in_a_folder_called_like_a_home_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    (tmp_path / "~/lab.yaml").write_text("workers: {count: 1}")
    assert spec.load("~/lab.yaml").roots == (tmp_path / "~",)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A process that opens it to read waits forever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize(
    "read",
    [
        open_bundle,
        inspection.inspect,
        lambda path: disk_format.check(path, "iso", str(path)),
        lambda path: windows_media.add(recipes.get("virtio-win"), path, None, Quiet()),
        lambda path: library.bring(path, Quiet()),
    ],
)
def test_no_one_waits_for_a_pipe(read: Callable[[Path], object], pipe: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(pipe)
    assert caught.value.why == "It is not a file."


@pytest.mark.parametrize("file", ["pipe", "/dev/zero", "large"])
def test_a_kubeconfig_that_names_an_endless_file(file: str, pipe: Path) -> None:
    with (pipe.parent / "large").open("wb") as large:
        large.truncate(join.LARGEST + 1)
    config = pipe.parent / "config"
    config.write_text(
        yaml.safe_dump(
            {
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": file}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    with pytest.raises(UsageError, match="can't be used"):
        join.chosen(config, "", "lab")


def test_an_endless_kubeconfig() -> None:
    with pytest.raises(UsageError, match="more than"):
        join.chosen(Path("/dev/zero"), "", "lab")


def test_endless_names(tmp_path: Path) -> None:
    assert not load.is_file(LONG)
    with pytest.raises(NotFoundError, match="There is no file"):
        load.prepare(f"./{LONG}", tmp_path, progress=Quiet())
