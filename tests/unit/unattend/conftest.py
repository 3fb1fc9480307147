"""A Linux node without a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from linux_guest import Guest

from winlab_node import prepare


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    monkeypatch.setattr(prepare, "_await_socket", lambda node: None)
    monkeypatch.setattr(os, "sync", lambda: None)
    return Guest(tmp_path)
