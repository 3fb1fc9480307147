"""One view of a lab: who changes it, what each node is doing, how long it takes; and runs that ended silently."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import histories
import pytest
from histories import BEGAN, Script

from winlab import locks
from winlab.design.plan.tags import Tag
from winlab.errors import AccessError, HostError, NotFoundError, UsageError
from winlab.events import Note, StepDone, record
from winlab.history.runs import History, RunState
from winlab.lab_folder import LabFolder
from winlab.operations import look, timeline, watch
from winlab.operations.look import NodeStatus
from winlab.site import Site


def tag(node: str) -> Tag:
    return Tag.model_construct(lab="lab", node=node, role="worker", image="x")


STATUSES = [NodeStatus(tag("a"), "running", True), NodeStatus(tag("b"), "shut off", None)]


def written(tmp_path: Path, *scripts: Script) -> tuple[Site, LabFolder]:
    site = Site(state=tmp_path)
    folder = site.folder("lab")
    folder.make()
    rows = [json.dumps(record(event)) for script in scripts for event in script.events]
    folder.journal.write_text("".join(f"{row}\n" for row in rows))
    return site, folder


def test_a_view_of_a_run_in_progress() -> None:
    script = Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3).step("progress", 3, 9, text="waiting for ssh")
    made = watch.view("lab", History(script.events), 42, STATUSES, BEGAN + 13)
    assert made.run is not None
    assert made.run.state is RunState.RUNNING
    assert (made.elapsed, made.left) == (13, 50 + 30)
    views = {node.name: node for node in made.nodes}
    assert list(views) == ["a", "b", "lab"]
    assert [(one.done, one.total) for one in views.values()] == [(1, 3), (0, 1), (1, 1)]
    (step,) = views["a"].steps
    assert (step.text, made.spent(step)) == ("waiting for ssh", 10)
    document = json.loads(json.dumps(made.document()))
    assert document["run"]["done"] == 2
    assert document["worker"]["pid"] == 42
    assert document["nodes"][0]["steps"][0]["text"] == "waiting for ssh"


def test_a_run_is_over_when_no_one_holds_the_lock() -> None:
    events = Script().did(1, 0, 2).step("started", 2, 3).events
    for worker in (None, 43):
        made = watch.view("lab", History(events), worker, STATUSES, BEGAN + 500)
        assert made.run is not None
        assert (made.run.state, made.left, made.elapsed) == (RunState.SILENT, None, 3)
        assert [node.name for node in made.nodes if node.steps] == []


def test_a_run_that_was_considered_dead_continues() -> None:
    """Its process took the lock after it was looked for."""
    history = History(Script().did(1, 0, 2).events)
    watch.view("lab", history, None, [], BEGAN)
    made = watch.view("lab", history, 42, [], BEGAN + 5)
    assert made.run is not None
    assert made.run.state is RunState.RUNNING


def test_a_clock_set_back_takes_no_time_away() -> None:
    made = watch.view("lab", History(Script().did(1, 0, 2).events), 42, [], BEGAN - 9999)
    assert made.elapsed == 2


def test_work_outside_of_a_run_is_shown() -> None:
    events = [*histories.whole().events, StepDone(lab="lab", step="remove domain a")]
    made = watch.view("lab", History(events), 42, STATUSES, BEGAN + 200)
    assert isinstance(made.outside, StepDone)
    assert watch.view("lab", History(events), None, STATUSES, BEGAN + 200).outside is None
    assert watch.view("lab", History(), None, [], BEGAN).run is None


@pytest.fixture
def hypervisor(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries to the hypervisor and to guests."""
    asked: list[str] = []

    class Machine:
        def __init__(self, status: NodeStatus) -> None:
            self.tag, self.state, self.hypervisor = status.tag, status.state, status.hypervisor

    def states(lab: str, site: Site) -> list[Any]:
        asked.append("states")
        return [Machine(status) for status in STATUSES]

    def login(lab: str, site: Site) -> list[NodeStatus]:
        asked.append("login")
        return STATUSES

    monkeypatch.setattr(look, "machines", states)
    monkeypatch.setattr(look, "status", login)
    return asked


def passing(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Time passes by *seconds* a look, without waiting."""
    now = [1000.0]

    def sleep(_: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("winlab.operations.watch.time.sleep", sleep)
    monkeypatch.setattr("winlab.operations.watch.time.monotonic", lambda: now[0])
    return now


class AtOnce:
    """A pool that does what it is given at once."""

    def submit(self, work: Any, *args: Any) -> Any:
        from concurrent.futures import Future

        made: Future[Any] = Future()
        try:
            made.set_result(work(*args))
        except Exception as error:
            made.set_exception(error)
        return made


def test_nodes_are_asked_seldom(hypervisor: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = passing(monkeypatch, 1)
    nodes = watch._Nodes("lab", Site(state=tmp_path), AtOnce())  # type: ignore[arg-type]
    answers = []
    for _ in range(120):
        answers.append([status.answers for status in nodes.latest()])
        now[0] += 1
    assert hypervisor.count("login") == 4
    assert 10 <= hypervisor.count("states") <= 24
    assert answers[0] == []
    assert answers[1] == [None, None]
    assert answers[2:] == [[True, None]] * 118


def test_a_hypervisor_that_does_not_answer_ends_no_view(
    hypervisor: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = passing(monkeypatch, 1)
    nodes = watch._Nodes("lab", Site(state=tmp_path), AtOnce())  # type: ignore[arg-type]
    for _ in range(3):
        nodes.latest()

    def silent(lab: str, site: Site) -> None:
        raise HostError("libvirt does not answer.")

    monkeypatch.setattr(look, "machines", silent)
    monkeypatch.setattr(look, "status", silent)
    now[0] += 10
    nodes.latest()
    assert len(nodes.latest()) == 2
    assert nodes.trouble == "libvirt does not answer."


def test_a_lab_is_watched_across_its_runs(
    hypervisor: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passing(monkeypatch, 1)
    site, folder = written(tmp_path, Script().did(1, 0, 2))
    with closing(watch.watch("lab", site)) as views:
        assert next(views).run.state is RunState.SILENT  # type: ignore[union-attr]
        with folder.journal.open("a") as file:
            for event in Script("r2").did(1, 0, 2).end(3).events:
                file.write(json.dumps(record(event)) + "\n")
        run = next(views).run
        assert run is not None
        assert (run.number, run.state) == (2, RunState.DONE)
        folder.journal.unlink()
        folder.record(Note(text="of a new lab"))
        assert next(views).run is None


def test_a_missing_lab_is_not_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(lab: str, hosts: object) -> None:
        raise NotFoundError(f"There is no lab '{lab}'.")

    monkeypatch.setattr(Site, "hypervisors", lambda _: nullcontext(None))
    monkeypatch.setattr(look, "machines", lambda lab, site: [])
    monkeypatch.setattr(look, "find", nothing)
    with pytest.raises(NotFoundError, match="no lab 'none'"):
        watch.watch("none", Site(state=tmp_path))
    with pytest.raises(UsageError, match="can't be the name"):
        watch.watch("../x", Site(state=tmp_path))


def test_a_timeline_distinguishes_a_killed_run_from_a_running_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site, _folder = written(tmp_path, Script().did(1, 0, 2), Script("r2").did(1, 0, 2))
    states = [run.state for run in timeline.timeline("lab", site, "all").runs]
    assert states == [RunState.SILENT, RunState.SILENT]
    monkeypatch.setattr(LabFolder, "worker", lambda self: 42)
    states = [run.state for run in timeline.timeline("lab", site, "all").runs]
    assert states == [RunState.SILENT, RunState.RUNNING]


def test_events_of_one_run_or_all(tmp_path: Path) -> None:
    site, folder = written(tmp_path, histories.whole(), Script("r2").did(1, 0, 2))
    folder.record(Note(text="outside"))
    assert len(list(timeline.events("lab", site, "all", follow=False))) == 17 + 4 + 1
    assert {event.run for event in timeline.events("lab", site, "last", follow=False)} == {"r2"}
    assert {event.run for event in timeline.events("lab", site, 1, follow=False)} == {"r1"}


def test_followed_events_are_those_of_the_run_and_later_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("winlab.operations.timeline.time.sleep", lambda _: None)
    site, folder = written(tmp_path, histories.whole(), Script("r2").did(1, 0, 2))
    with closing(timeline.events("lab", site, "last", follow=True)) as followed:
        assert [next(followed).run for _ in range(4)] == ["r2"] * 4
        folder.record(Note(text="destroyed"))
        assert next(followed).text == "destroyed"  # type: ignore[attr-defined]


def test_a_lab_without_a_journal_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = Site(state=tmp_path)
    for ask in (
        lambda: timeline.timeline("lab", site, "last"),
        lambda: timeline.events("lab", site, "all", follow=False),
    ):
        with pytest.raises(NotFoundError, match="no journal"):
            ask()
    _, folder = written(tmp_path)
    with pytest.raises(NotFoundError, match="no run yet"):
        timeline.timeline("lab", site, "last")
    folder.journal.unlink()
    folder.journal.mkdir()
    with pytest.raises(AccessError, match="can't be read"):
        timeline.timeline("lab", site, "last")


def test_the_kernel_says_who_holds_a_lock(tmp_path: Path) -> None:
    """Its file names its last holder, even when it is free."""
    path = tmp_path / "lab.lock"
    assert locks.holding(path) is None
    with locks.attempt(path) as mine:
        assert mine
        assert locks.holding(path) == os.getpid()
    assert locks.holder(path) == str(os.getpid())
    assert locks.holding(path) is None
    path.write_text("999999999")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert locks.holding(path) is None
    assert locks.owner(os.getpid())
    assert locks.owner(999999999) == ""
