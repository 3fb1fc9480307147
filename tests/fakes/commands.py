"""Runs the command ``winlab`` in tests, in this process."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from winlab.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["winlab", *args])
    monkeypatch.setenv("WINLAB_CONFIG", os.environ.get("WINLAB_CONFIG", "/nonexistent/config.yaml"))
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    exit_code: int
    stdout: str
    stderr: str


def ran(*words: str) -> Ran:
    """Run a command, and catch what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        code = run(patched, *words)
    return Ran(code, out.getvalue(), err.getvalue())
