"""docs/tutorial.md does what it shows: ``make test-docs``, as a slow test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from console_blocks import check

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("host")
def test_every_command_of_the_tutorial_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert check(TOP / "docs/tutorial.md") == 0
