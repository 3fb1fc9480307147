"""Every unit test is guarded: see guard.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import guard
import pytest


@pytest.fixture(autouse=True)
def _touch_nothing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base = tmp_path_factory.getbasetemp().resolve()
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("WINLAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WINLAB_CACHE", str(home / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(home / "state"))
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "none:///system")  # libvirt's own code connects behind the guard's back
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    guard.base = base
    yield
    guard.base = None
