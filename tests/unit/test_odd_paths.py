"""Paths that users give and that lead nowhere: an unknown user's home, links in a circle, names without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab import account
from winlab.cli.flags import SourceFlags
from winlab.design import spec
from winlab.errors import NotFoundError, UsageError
from winlab.events import Quiet
from winlab.operations import join, load

NOBODY = "~nosuchuser/x"
LONG = "a" * 300


def test_the_home_of_nobody(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("workers: {count: 1}")
    for ask in (
        lambda: spec.load("1-1-1", iso=NOBODY),
        lambda: spec.load(str(tmp_path / "lab.yaml"), allow=[NOBODY]),
        lambda: SourceFlags(kubelet=[Path(NOBODY)]).origin,
        lambda: join.chosen(Path(NOBODY), "", "lab"),
        lambda: load.prepare(NOBODY, tmp_path, progress=Quiet()),
    ):
        with pytest.raises(UsageError, match=f"'{NOBODY}' can't be followed"):
            ask()


def test_links_in_a_circle(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "lab.yaml").write_text("workers: {count: 1}")
    for ask in (
        lambda: spec.load("1-1-1", iso=loop),
        lambda: spec.load(str(tmp_path / "lab.yaml"), allow=[loop]),
        lambda: account.followed(loop),
    ):
        with pytest.raises(UsageError, match="can't be followed"):
            ask()


def test_a_spec_in_a_folder_called_like_a_home_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    (tmp_path / "~/lab.yaml").write_text("workers: {count: 1}")
    assert spec.load("~/lab.yaml").roots == (tmp_path / "~",)


def test_names_without_end(tmp_path: Path) -> None:
    assert not load.is_file(LONG)
    with pytest.raises(NotFoundError, match="There is no file"):
        load.prepare(f"./{LONG}", tmp_path, progress=Quiet())
