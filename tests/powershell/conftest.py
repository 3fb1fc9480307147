"""winlab's PowerShell scripts, run by a real engine on a worker node without Windows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from powershell import engine as engines
from powershell.doubles import session as sessions
from powershell.doubles.machine import Machine
from powershell.doubles.session import Session
from powershell.engine import ROOT

# mutants.py puts a changed copy in their place
SCRIPTS = Path(os.environ.get("WINLAB_TEST_SCRIPTS") or ROOT / "unattend/windows")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    """Where the engine is available no test may be left out: a skip is a failure."""
    report: pytest.TestReport = yield
    if report.skipped and engines.SHARED.is_dir():
        report.outcome = "failed"
        report.longrepr = f"left out though {engines.SHARED} is there: {report.longrepr}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start the engine for each script, as Windows does; they take longest."""
    for item in items:
        if {"machine", "worker"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("alone")


@pytest.fixture(scope="session")
def parser() -> Path:
    """Any PowerShell: it reads scripts."""
    try:
        return engines.locate(ROOT / ".pytest_cache/d/powershell")
    except engines.MissingEngineError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def engine(parser: Path) -> Path:
    """An engine that runs them, with the fakes."""
    if not engines.runs_doubles(parser):
        assert not engines.SHARED.is_dir(), f"{parser} {engines.PARSES_ONLY}"  # it has one that runs them
        pytest.skip(f"{parser} {engines.PARSES_ONLY}")
    return parser


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


@pytest.fixture(scope="session")
def session(engine: Path) -> Iterator[Session]:
    made = sessions.KEPT or Session(engine)
    yield made
    if made is not sessions.KEPT:
        made.close()


@pytest.fixture
def node(engine: Path, session: Session, tmp_path: Path) -> Iterator[Machine]:
    """A fresh node whose scripts run in one process: ten times as quick as each in a process of its own."""
    with Machine(tmp_path, engine, SCRIPTS, session=session) as made:
        yield made


@pytest.fixture(autouse=True)
def _record(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which scripts a test runs, and how long it takes, for mutants.py."""
    to = os.environ.get("WINLAB_TEST_RECORD")
    Machine.ran.clear()
    begun = time.monotonic()
    yield
    if to:
        row = {
            "test": request.node.nodeid,
            "seconds": time.monotonic() - begun,
            "scripts": sorted(Machine.ran),
            "shares": not request.node.get_closest_marker("alone"),
        }
        with Path(to).open("a") as file:
            file.write(json.dumps(row) + "\n")
