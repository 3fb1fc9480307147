"""Nothing waits for the disk: a test's files need not survive a power cut, and a busy disk takes seconds each time."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """``fsync`` and ``sync`` return at once."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    monkeypatch.setattr(os, "sync", lambda: None)
