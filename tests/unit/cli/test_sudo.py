"""A cure that begins with sudo can be pasted: it names a program that sudo finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from winlab.cli import sudo

CURE = "Run 'sudo winlab host setup'."


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The command that runs, in a folder that sudo does not search."""
    file = tmp_path / "winlab"
    file.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(file), "status"])
    monkeypatch.setattr(sudo, "SECURE_PATH", str(tmp_path / "bin"))
    return file


def test_the_file_is_named(program: Path) -> None:
    assert sudo.runnable(CURE) == f"Run 'sudo {program} host setup'."
    assert sudo.runnable("Run 'winlab doctor'.") == "Run 'winlab doctor'."


def test_what_sudo_finds_needs_no_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sudo, "SECURE_PATH", str(program.parent))
    assert sudo.runnable(CURE) == CURE


def test_another_program_is_not_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = program.with_name("python")
    python.touch(mode=0o755)
    for name in (str(python), "winlab/__main__.py"):
        monkeypatch.setattr(sys, "argv", [name])
        assert sudo.runnable(CURE) == CURE
