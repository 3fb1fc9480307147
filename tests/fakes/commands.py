"""Runs winlab's commands in tests, in an application of their own."""

from __future__ import annotations

import sys

import pytest
import typer

from winlab.cli import cluster
from winlab.errors import WinlabError


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """The exit code of a command of winlab/cli/cluster.py."""
    app = typer.Typer()
    cluster.register(app)
    monkeypatch.setattr(sys, "argv", ["winlab", *args])
    try:
        app()
    except SystemExit as ended:
        return int(ended.code or 0)
    except WinlabError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    raise AssertionError("the command did not end")
