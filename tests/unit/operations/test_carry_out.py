"""Jobs: what is locked, what is in the journal, what is left behind, and that nothing else does these things."""

from __future__ import annotations

import ast
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import winlab
from winlab import journal, stopping
from winlab.adapters.vm import domains
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.errors import ConflictError, GuestError, NotFoundError
from winlab.events import Event, Note, Quiet, RunStarted, ignore
from winlab.lab_folder import LabFolder
from winlab.operations.carry_out import Job, Underway, carry_out, hold, require_idle
from winlab.site import Site
from winlab.stopping import Stopped


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site on which every lab has a machine."""
    monkeypatch.setattr(Site, "hypervisors", lambda _: nullcontext(Hypervisors(())))
    monkeypatch.setattr(Hypervisors, "machines", lambda _hosts, lab=None: [domains.Machine("m", "running", None)])
    return Site()


def note(under: Underway) -> None:
    with pytest.raises(ConflictError, match="Another winlab"), LabFolder("lab").locked():
        pass
    under.tell(Note(lab="lab", text="at work"))


def test_the_work_is_under_the_lock_and_in_the_journal(site: Site) -> None:
    heard: list[Event] = []
    carry_out(Job("lab", note), site, heard.append)
    assert [str(one) for one in journal.read(LabFolder("lab").journal)] == [str(one) for one in heard]
    with LabFolder("lab").locked():
        pass  # it is free again
    assert carry_out(Job("lab", lambda under: under.folder.lab), site, ignore) == "lab"


def test_a_step_is_a_run_of_the_lab(site: Site) -> None:
    job = Job("lab", lambda under: under.one_step("push node-1", lambda _: 7, usual=1, node="node-1"))
    assert carry_out(job, site, ignore) == 7
    (started,) = [one for one in journal.read(LabFolder("lab").journal) if isinstance(one, RunStarted)]
    assert (started.lab, started.command, started.steps[0].node) == ("lab", "push node-1", "node-1")


@pytest.mark.parametrize("fails", [False, True])
def test_another_accounts_lab_leaves_no_folder(site: Site, fails: bool) -> None:
    def work(under: Underway) -> None:
        note(under)
        if fails:
            raise GuestError("It fails.")

    heard: list[Event] = []
    with pytest.raises(GuestError) if fails else nullcontext():
        carry_out(Job("lab", work, must_exist=True), site, heard.append)
    assert len(heard) == 1
    assert not LabFolder("lab").path.exists()


def test_a_missing_lab_is_not_locked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hypervisors, "machines", lambda _hosts, lab=None: [])
    with pytest.raises(NotFoundError, match="no lab"):
        carry_out(Job("lab", lambda _: pytest.fail("it began"), must_exist=True), site, ignore)
    assert not LabFolder("lab").path.exists()


def test_a_job_that_was_stopped_does_not_begin(site: Site) -> None:
    stop = threading.Event()
    stop.set()
    with stopping.by(stop), pytest.raises(Stopped):
        carry_out(Job("lab", lambda _: pytest.fail("it began")), site, ignore)
    assert not LabFolder("lab").path.exists()


def test_other_locks_end_with_the_job(site: Site) -> None:
    def work(under: Underway) -> None:
        hold(LabFolder("golden"), under.held, Quiet(), "making it")
        with pytest.raises(ConflictError, match="Another winlab"):
            require_idle(LabFolder("golden"))
        raise GuestError("It fails.")

    with pytest.raises(GuestError, match="fails"):
        carry_out(Job("lab", work), site, ignore)
    require_idle(LabFolder("golden"))


def test_work_that_only_reads_needs_no_lock(site: Site) -> None:
    with LabFolder("lab").locked():
        assert carry_out(Job("lab", lambda _: 7, locks=False), site, ignore) == 7
        with pytest.raises(ConflictError, match="Another winlab"):
            carry_out(Job("lab", lambda _: 7), site, ignore)


def calls(tree: ast.AST, *names: str) -> list[int]:
    """The lines that call a method of one of these names."""
    attributes: list[Any] = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return [one.lineno for one in attributes if isinstance(one, ast.Attribute) and one.attr in names]


def test_nothing_else_locks_a_lab_or_writes_its_journal() -> None:
    """That only carry_out calls the engine is a contract of import-linter (pyproject.toml)."""
    root = Path(winlab.__file__).parent
    above = [root / "node.py", root / "supplies.py"]
    for layer in ("lab", "cli", "checks", "operations", "addons", "steps"):
        above += (root / layer).rglob("*.py")
    found = {path.name for path in above if calls(ast.parse(path.read_bytes()), "locked", "held", "journaled")}
    assert found == {"carry_out.py"}
