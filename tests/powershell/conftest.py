"""winlab's PowerShell scripts, run by a real engine on a worker node without Windows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from powershell import engine as engines
from powershell.doubles.machine import Machine

SCRIPTS = engines.ROOT / "unattend/windows"


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Path:
    program = engines.locate(Path(request.config.cache.mkdir("powershell")))  # type: ignore[union-attr]
    if program is None and os.environ.get("CI"):
        pytest.fail(engines.MISSING)
    if program is None:
        pytest.skip(engines.MISSING)
    return program


@pytest.fixture
def machine(engine: Path, tmp_path: Path) -> Iterator[Machine]:
    """A fresh node."""
    with Machine(tmp_path, engine, SCRIPTS) as made:
        yield made


@pytest.fixture(scope="module")
def worker(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One node for the tests of a module, which come one after the other as in a worker's life."""
    with Machine(tmp_path_factory.mktemp("worker"), engine, SCRIPTS) as made:
        yield made
