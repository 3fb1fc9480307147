"""A plugin of pytest: tests that use a lab (docs/testing-with-winlab.md).

pytest loads it by its entry point in every run, also of projects that have no labs. So it imports nothing heavy before
a test uses a lab.

All names of a run's labs begin with the run's name. That of a process is a copy of one snapshot, and a process is
pytest itself or a worker of pytest-xdist.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import winlab

if TYPE_CHECKING:
    from winlab import Lab, Node

SNAPSHOT = "ready"  # the name of the snapshot that a run makes
SUPPORT = "build/winlab-support"
SCOPES = ("session", "module", "function")
WANTED: Mapping[str, Any] = {"scope": "module", "windows": 0, "linux": 0}  # what the marker takes, with the defaults
MARKER = (
    "winlab(scope='module', windows=0, linux=0): when the lab is reset ('session': never, 'module': before the "
    "module's first test, 'function': before the test), and how many nodes of each system the test needs"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each also as an entry of pytest's configuration file."""
    group = parser.getgroup("winlab", "labs of Kubernetes with Windows nodes")

    def add(name: str, text: str, kind: Literal["string", "linelist", "bool"], default: object, **how: Any) -> None:
        group.addoption(f"--winlab-{name}", dest=f"winlab_{name}", default=None, help=text, **how)
        parser.addini(f"winlab_{name}", text, type=kind, default=default)

    text = "The lab: controllers-workers-hypervisors, a name in specs/, or a YAML file; default: 1-1-1."
    add("spec", text, "string", "1-1-1", metavar="SPEC")
    text = "Change a setting of the spec, as 'winlab create --set' does; may be repeated."
    add("set", text, "linelist", [], action="append", metavar="PATH=VALUE")
    add(
        "rehearse", "Use stand-ins for Windows, as 'winlab create --rehearse' does.", "bool", False, action="store_true"
    )
    text = "Use copies of this snapshot, in place of a new lab."
    add("from", text, "string", "", metavar="LAB@SNAPSHOT")
    text = "Keep the labs after the run; the next run with the same options uses them."
    add("keep", text, "bool", False, action="store_true")
    text = f"Where archives about failed tests go, from pytest's root folder; empty: none. Default: {SUPPORT}."
    add("support", text, "string", SUPPORT, metavar="DIR")


class Run:
    """The labs of a run, as one of its processes sees them.

    :param name: of the run. The lab of pytest itself has the same name, that of a worker has the worker's id after it.
    :param lab: what tests use, or what is being made for them; None before the first one.
    :param nodes: the names of the lab's nodes, by system; None before the snapshot is known.
    :param summary: lines for the end of pytest's output.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        worker = getattr(config, "workerinput", None)  # pytest-xdist's
        self.is_worker = worker is not None
        self.name: str = worker["winlab_run"] if worker is not None else f"pytest-{self._id()}"
        self._own = f"{self.name}-{worker['workerid']}" if worker is not None else self.name
        self._origin: str = self._option("from") or f"{self.name}@{SNAPSHOT}"
        if "@" not in self._origin:
            raise pytest.UsageError(f"--winlab-from takes LAB@SNAPSHOT, and this is '{self._origin}'.")
        self.lab: Lab | None = None
        self.nodes: Mapping[str, Sequence[str]] | None = None
        self.summary: list[str] = []
        self._failure = ""
        self._users: str | None = None  # the module whose tests have the lab; empty: others'; None: it is not usable

    def _option(self, name: str) -> Any:
        given = self._config.getoption(f"winlab_{name}")
        return self._config.getini(f"winlab_{name}") if given is None else given

    def _id(self) -> str:
        """What distinguishes this run from others; with --winlab-keep, from those with other options."""
        if not self._option("keep"):
            return os.urandom(4).hex()
        spec = Path(self._option("spec"))
        content = spec.read_bytes() if spec.is_file() else b""
        options = [self._option(name) for name in ("spec", "set", "rehearse", "from")]
        return hashlib.sha256(f"{os.getuid()} {self._config.rootpath} {options} ".encode() + content).hexdigest()[:8]

    @property
    def _lock(self) -> Path:
        """Held while the snapshot is made. If there is no such file, no test has used a lab."""
        from winlab import settings

        return settings.state_dir() / "pytest" / f"{self.name}.lock"

    def prepare(self, item: pytest.Item) -> None:
        """Have the lab as a test wants it: made, and reset if the test begins a scope."""
        wanted = _wanted(item)
        if self._failure:
            self.lab = None  # the first test's archive has it all
            pytest.fail(self._failure, pytrace=False)
        try:
            if self.nodes is None:
                self.nodes = self._begin()
            for system, names in self.nodes.items():
                if wanted[system] > len(names):
                    pytest.skip(f"needs {wanted[system]} {system} nodes, and the lab has {len(names)}")
            module = item.nodeid.partition("::")[0] if wanted["scope"] == "module" else ""
            if self._users is None or wanted["scope"] == "function" or (module and self._users != module):
                self._users = None
                self._renew()
                self._users = module
        except winlab.WinlabError as error:
            if self.nodes is None:
                self._failure = str(error)
            pytest.fail(str(error), pytrace=False)

    def _begin(self) -> Mapping[str, Sequence[str]]:
        """Have the snapshot, which one process of the run makes; returns the names of its nodes."""
        from winlab import files, locks
        from winlab.events import Quiet

        self.lab = lab = winlab.Lab(self.name)
        files.make_parents(self._lock)
        with locks.held(self._lock, Quiet(), "making the lab of the tests"):
            if not self._option("from") and not any(row.record for row in lab.snapshots.list()):
                spec = winlab.Spec.load(self._option("spec"), self._option("set"), rehearse=self._option("rehearse"))
                lab.create(lab.plan(spec))
                lab.snapshots.save(SNAPSHOT)
                lab.destroy()  # each process has a copy
        row = lab.snapshots.show(self._origin)
        if row.record is None:
            raise winlab.WinlabError(
                f"The snapshot '{self._origin}' can't be used: {row.problem}.", cure="Save the lab again."
            )
        plan = row.record.plan
        return {
            "windows": [node.name for node in plan.windows_nodes()],
            "linux": [node.name for node in plan.linux_nodes()],
        }

    def _renew(self) -> None:
        """Have the process's own lab as in the snapshot."""
        self.lab = lab = winlab.Lab(self._own)
        made = lab.snapshots.reset(self._origin) if lab.machines() else lab.snapshots.create_from(self._origin)
        if not made.resumed:
            lab.start()

    def archive(self, item: pytest.Item, failed: BaseException | None) -> str | None:
        """Write an archive about a failed test; returns its path, or why there is none. None: it is not asked for."""
        folder = self._option("support")
        if not folder or self.lab is None:
            return None
        name = re.sub(r"[^\w.-]+", "-", item.nodeid, flags=re.ASCII)[-150:].strip("-")
        path = self._config.rootpath / folder / f"{name}.tar.gz"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return str(self.lab.support(path, failed=failed))
        except Exception as error:  # the report is of the test's own failure
            return f"There is no archive: {error}"

    def end(self) -> None:
        """Remove the labs of all processes, and the snapshot, or name them."""
        try:
            if not self._lock.exists():
                return
        except OSError:  # not this user's
            return
        labs = [lab for lab in winlab.Lab.known_names() if f"{lab}-".startswith(f"{self.name}-")]
        if self._option("keep"):
            self.summary.append(f"These labs are kept: {', '.join(labs)}.")
            for lab in labs:
                self.summary.append(f"winlab destroy --lab {lab}")
            if not self._option("from"):
                self.summary.append(f"winlab snapshot delete {self._origin}")
            return
        for lab in labs:
            self._remove(winlab.Lab(lab).destroy)
        if not self._option("from"):
            self._remove(lambda: winlab.Lab(self.name).snapshots.delete(SNAPSHOT))
        self._lock.unlink(missing_ok=True)

    def _remove(self, remove: Callable[[], object]) -> None:
        try:
            remove()
        except winlab.NotFoundError:
            pass
        except winlab.WinlabError as error:
            self.summary.append(str(error))


RUN = pytest.StashKey[Run]()


def _uses_a_lab(item: pytest.Item) -> bool:
    return "winlab_lab" in getattr(item, "fixturenames", ())


def _wanted(item: pytest.Item) -> Mapping[str, Any]:
    """What a test's markers say; the closest counts."""
    wanted = dict(WANTED)
    for mark in reversed([*item.iter_markers("winlab")]):
        wanted |= mark.kwargs
        if mark.args or wanted.keys() != WANTED.keys() or wanted["scope"] not in SCOPES:
            pytest.fail(f"the marker is winlab(scope={'|'.join(SCOPES)}, windows=N, linux=N)", pytrace=False)
    return wanted


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line("markers", MARKER)
    config.stash[RUN] = Run(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the run's name."""
    node.workerinput["winlab_run"] = node.config.stash[RUN].name


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the lab ready before any fixture of the test, also those of its module."""
    if _uses_a_lab(item):
        item.config.stash[RUN].prepare(item)


@pytest.hookimpl(wrapper=True)  # around pytest's own, for which a test that is expected to fail has not failed
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add an archive to the report of a failed test."""
    report = yield
    if report.failed and call.when != "teardown" and _uses_a_lab(item):
        failed = call.excinfo.value if call.excinfo is not None else None
        if (found := item.config.stash[RUN].archive(item, failed)) is not None:
            report.sections.append(("winlab support", found))
    return report


@pytest.hookimpl(trylast=True)  # after the fixtures of the session, and after the workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the run's labs."""
    run = session.config.stash[RUN]
    if not run.is_worker:
        run.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the labs that are kept, and what could not be removed."""
    if lines := config.stash[RUN].summary:
        terminalreporter.section("winlab")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def winlab_lab(request: pytest.FixtureRequest) -> Lab:
    """The lab of this process, Ready: a :class:`winlab.Lab`. The marker ``winlab`` says when it is reset."""
    lab: Lab | None = request.config.stash[RUN].lab
    if lab is None:
        pytest.fail("Name 'winlab_lab' among the arguments of the test or of a fixture.", pytrace=False)
    return lab


@pytest.fixture(scope="session")
def winlab_kubectl(winlab_lab: Lab) -> Callable[..., str]:
    """What the lab's kubectl prints: ``winlab_kubectl("get", "nodes")``."""
    return winlab_lab.kubectl


@pytest.fixture(scope="session")
def winlab_windows(request: pytest.FixtureRequest, winlab_lab: Lab) -> list[Node]:
    """The lab's Windows nodes."""
    return _nodes(request, winlab_lab, "windows")


@pytest.fixture(scope="session")
def winlab_linux(request: pytest.FixtureRequest, winlab_lab: Lab) -> list[Node]:
    """The lab's Linux nodes, controllers included."""
    return _nodes(request, winlab_lab, "linux")


def _nodes(request: pytest.FixtureRequest, lab: Lab, system: str) -> list[Node]:
    return [lab.node(name) for name in (request.config.stash[RUN].nodes or {})[system]]
