"""Options and helpers for all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CHECKERS = Path(__file__).resolve().parent.parent.parent / "shared" / "tools"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session")
def checkers() -> Path:
    """The folder with the checkers of answer files and PowerShell. Missing ones fail in CI."""
    if not CHECKERS.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"the checkers are missing: {CHECKERS}")
        pytest.skip(f"the checkers of answer files and PowerShell are not at {CHECKERS}")
    if str(CHECKERS) not in sys.path:
        sys.path.insert(0, str(CHECKERS))
    return CHECKERS
