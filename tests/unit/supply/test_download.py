"""The parts of a download that need no server."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from winlab.errors import HostError, UsageError
from winlab.supply import download

URL = "https://publisher.example/a/b/image.qcow2?x=1"


def test_no_mirror() -> None:
    assert download.rewrite(URL, None) == download.rewrite(URL, "") == URL


@pytest.mark.parametrize("mirror", ["http://mirror.example/pub", "http://mirror.example/pub/"])
def test_a_mirror_replaces_scheme_and_host(mirror: str) -> None:
    assert download.rewrite(URL, mirror) == "http://mirror.example/pub/a/b/image.qcow2"


def test_a_folder_holds_the_file_by_its_base_name(tmp_path: Path) -> None:
    assert download.rewrite(URL, str(tmp_path)) == tmp_path / "image.qcow2"


@pytest.mark.parametrize("mirror", ["ftp://mirror.example", "/no/such/folder", "mirror.example"])
def test_other_mirrors_are_refused(mirror: str) -> None:
    with pytest.raises(UsageError, match="mirror"):
        download.rewrite(URL, mirror)


def test_space_is_checked_before_anything_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    download.check_space(tmp_path, 1_000_000)
    with pytest.raises(HostError, match="space") as caught:
        download.check_space(tmp_path, 5_000_000)
    assert "5 MB are needed and 1 MB are free" in caught.value.why
