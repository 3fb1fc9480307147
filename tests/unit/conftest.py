"""Every unit test is guarded: see guard.py."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import distributions
import guard
import pytest


@pytest.fixture(autouse=True)
def _touch_nothing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base = tmp_path_factory.getbasetemp().resolve()
    home = tmp_path_factory.mktemp("home")
    for name in ("WINLAB_LAB", "WINLAB_SPEC", "WINLAB_MIRROR", "WINLAB_DEBIAN_MIRROR", "WINLAB_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WINLAB_CACHE", str(home / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(home / "state"))
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "none:///system")  # libvirt's own code connects behind the guard's back
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    guard.base = base
    yield
    guard.base = None


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[partial[distributions.Distribution]]:
    """Installs packages of other people for one test: ``distribution(name, version, files, points)``."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield partial(distributions.install, tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
