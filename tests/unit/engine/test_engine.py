"""The engine: order, parallelism, failures, interrupts, and its events."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import runs

import winlab
from winlab import stopping
from winlab.engine import engine, step
from winlab.engine.state import Kind, State
from winlab.engine.step import Load, Step
from winlab.errors import ExitCode, GuestError, HostError, LabError
from winlab.events import Event, Progress, RunEnded, RunStarted, StepChecking, StepDone, StepEvent, StepFailed
from winlab.stopping import Stopped

KIND = Kind("made", lambda state: state.node)


def at(name: str) -> State:
    return KIND("lab", name)


def make(
    name: str,
    run: Callable[[Progress], object] | None = None,
    *,
    after: str = "",
    done: bool = False,
    load: Load = Load.WAITS,
) -> Step:
    return Step(at(name), run or nothing, lambda: done, [at(one) for one in after], usual=3, load=load)


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def names(self, title: str) -> list[str]:
        """What happened to a step, without the question whether it is done."""
        found = (one for one in self.events if isinstance(one, StepEvent) and one.step == title)
        return [type(one).__name__ for one in found if not isinstance(one, StepChecking)]

    @property
    def ended(self) -> RunEnded:
        (last,) = [one for one in self.events if isinstance(one, RunEnded)]
        assert self.events[-1] is last
        return last


def nothing(progress: Progress) -> None:
    progress.say("working")


def test_order_and_events() -> None:
    seen: list[str] = []
    tell = Recorder()
    steps = [
        make("b", lambda _: seen.append("b"), after="a"),
        make("a", lambda _: seen.append("a")),
        make("c", lambda _: seen.append("c"), after="b"),
    ]
    engine.run(steps, tell, "lab")
    assert seen == ["a", "b", "c"]
    assert tell.names("b") == ["StepStarted", "StepDone"]
    first = tell.events[0]
    assert isinstance(first, RunStarted)
    assert [(one.step, one.reaches, one.node, one.lab, one.usual) for one in first.steps] == [
        (name, "made", name, "lab", 3) for name in "abc"
    ]
    done = [(one.done, one.total) for one in tell.events if isinstance(one, StepDone)]
    assert done == [(1, 3), (2, 3), (3, 3)]
    assert (tell.ended.exit_code, tell.ended.failures, tell.ended.lab) == (0, (), "lab")


def test_events_carry_run_order_and_runner() -> None:
    tell = Recorder()
    engine.run([make("c", after="b"), make("b", after="a"), make("a")], tell, "lab", "create")
    first = tell.events[0]
    assert isinstance(first, RunStarted)
    assert (first.command, first.pid, first.version) == ("create", os.getpid(), winlab.__version__)
    assert first.user
    assert [(one.step, one.after) for one in first.steps] == [("a", ()), ("b", (1,)), ("c", (2,))]
    assert {event.run for event in tell.events} == {first.run}
    assert first.run
    times = [event.elapsed for event in tell.events]
    assert times == sorted(times)
    for event in tell.events:
        if isinstance(event, StepEvent):
            assert first.steps[event.number - 1].step == event.step
    other = Recorder()
    engine.run([make("a")], other)
    assert other.events[0].run != first.run


def test_steps_that_are_done_are_not_run() -> None:
    tell = Recorder()

    def explode(progress: Progress) -> None:
        raise AssertionError

    engine.run([make("a", explode, done=True), make("b", after="a")], tell)
    assert tell.names("a") == ["StepSkipped"]
    assert tell.names("b") == ["StepStarted", "StepProgress", "StepDone"]


def test_events_carry_the_step_s_node_and_lab_or_the_run_s() -> None:
    tell = Recorder()
    shared = Step(KIND(of="x"), nothing, lambda: False)
    engine.run([make("a"), shared], tell, "mine")
    labs = {(one.step, one.node, one.lab) for one in tell.events if isinstance(one, StepEvent)}
    assert labs == {("a", "a", "lab"), ("", "", "mine")}


def test_independent_steps_run_at_once() -> None:
    barrier = threading.Barrier(20, timeout=10)
    engine.run([make(f"n{n}", lambda _: barrier.wait()) for n in range(20)], Recorder())


def most_at_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of ten steps of this load run at the same time, beside one that waits for a guest all the while."""
    monkeypatch.setattr(step.os, "cpu_count", lambda: 2)
    lock, going, most = threading.Lock(), 0, 0
    over = threading.Event()

    def work(_: Progress) -> None:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        time.sleep(0.02)
        with lock:
            going -= 1

    steps = [make(f"n{n}", work, load=load) for n in range(10)]
    waiting = make("guest", lambda _: over.wait(10))
    names: Iterable[State] = [one.reaches for one in steps]
    last = Step(at("last"), lambda _: over.set(), lambda: False, names)
    engine.run([waiting, *steps, last], Recorder())
    return most


@pytest.mark.parametrize(("load", "most"), [(Load.POOL, 1), (Load.CORE, 3)])
def test_computing_and_writing_steps_are_bounded(load: Load, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_at_once(load, monkeypatch) == most


def test_a_failure_stops_the_rest_and_is_raised() -> None:
    started = threading.Event()
    ended: list[str] = []

    def fail(progress: Progress) -> None:
        started.wait(10)
        raise GuestError("no", why="because")

    def wait_for_ever(progress: Progress) -> None:
        started.set()
        try:
            while True:
                progress.say("waiting")
                time.sleep(0.01)
        finally:
            ended.append("waiter")

    tell = Recorder()
    after = Step(at("x"), nothing, lambda: False, [at("fail")])
    with pytest.raises(GuestError, match="no"):
        engine.run([make("fail", fail), make("wait", wait_for_ever), after], tell)
    assert ended == ["waiter"]
    assert tell.names("x") == []
    assert tell.names("fail") == ["StepStarted", "StepFailed"]
    assert "StepFailed" not in tell.names("wait")
    (failed,) = [one for one in tell.events if isinstance(one, StepFailed)]
    assert (failed.failure.what, failed.failure.why, failed.failure.exit_code) == ("no", "because", 9)
    assert tell.ended.failures == (failed.failure,)
    assert tell.ended.exit_code == ExitCode.GUEST


def test_several_failures_are_all_reported_and_raised() -> None:
    barrier = threading.Barrier(3, timeout=10)

    def fail(error: Exception) -> Callable[[Progress], None]:
        def run(progress: Progress) -> None:
            barrier.wait()
            raise error

        return run

    tell = Recorder()
    errors = (KeyError("x"), GuestError("no"), HostError("bad"))
    with pytest.raises(LabError) as caught:
        engine.run([make(name, fail(error)) for name, error in zip("abc", errors, strict=True)], tell)
    assert set(caught.value.exceptions) == set(errors)
    assert {one.failure.what for one in tell.events if isinstance(one, StepFailed)} == {"KeyError: 'x'", "no", "bad"}
    assert {one.error for one in tell.ended.failures} == {"KeyError", "GuestError", "HostError"}
    first = next(one for one in caught.value.exceptions if not isinstance(one, KeyError))
    assert tell.ended.exit_code == caught.value.exit_code == first.exit_code  # type: ignore[attr-defined]


def test_an_interrupt_stops_running_steps() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    ended = threading.Event()
    tell = Recorder()

    def wait_for_ever(progress: Progress) -> None:
        try:
            while True:
                progress.say("waiting")
                time.sleep(0.01)
        finally:
            ended.set()

    def interrupt(event: Event) -> None:
        tell(event)
        if isinstance(event, StepDone):
            import _thread

            _thread.interrupt_main()

    try:
        with pytest.raises(KeyboardInterrupt):
            engine.run([make("wait", wait_for_ever), make("quick")], interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()
    assert (tell.ended.exit_code, tell.ended.failures) == (130, ())


def test_a_failure_ends_blocking_calls_of_other_steps() -> None:
    """A command in a guest is silent for minutes; it checks this instead."""
    blocks = threading.Event()

    def block(_: Progress) -> None:
        blocks.set()
        while True:
            stopping.check()
            time.sleep(0.01)

    def fail(_: Progress) -> None:
        blocks.wait(10)
        raise HostError("no")

    with pytest.raises(HostError, match="no"):
        engine.run([make("a", block), make("b", fail)], Recorder())


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_step_that_finishes_is_stopped_by_the_user_alone(interrupted: bool) -> None:
    """An upload to another host must not suffer because one host is off."""
    failed, stop, ended = threading.Event(), threading.Event(), list[str]()
    begun = threading.Event()

    def fail(_: Progress) -> None:
        begun.wait(60)
        raise HostError("no")

    def be_stopped(progress: Progress) -> None:
        """It ends when the engine knows of the failure."""
        begun.set()
        try:
            until_stopped(progress)
        finally:
            failed.set()

    def upload(progress: Progress) -> None:
        failed.wait(60)
        if interrupted:
            stop.set()
        for _ in range(10):
            progress.say("uploading")
            stopping.check()
        ended.append("upload")

    steps = [make("f", fail), make("s", be_stopped), replace(make("u", upload), finishes=True)]
    with pytest.raises(HostError, match="no"), stopping.by(stop):
        engine.run([*steps, make("x", nothing, after="u")], Recorder())
    assert ended == ([] if interrupted else ["upload"])


def stopped_run(steps: Iterable[Step], tell: Callable[[Event], None], stop: threading.Event) -> BaseException | None:
    """The error of a run that *stop* stops; None if it raised none."""

    def run() -> None:
        with stopping.by(stop):
            engine.run(steps, tell, "lab")

    return runs.error_of(run)


def until_stopped(progress: Progress) -> None:
    while True:
        progress.say("waiting")
        time.sleep(0.01)


def test_a_run_ends_when_it_is_stopped_while_a_step_runs_and_another_waits() -> None:
    stop, tell = threading.Event(), Recorder()

    def work(progress: Progress) -> None:
        stop.set()
        until_stopped(progress)

    error = stopped_run([make("a", work), make("b", after="a")], tell, stop)
    assert isinstance(error, Stopped)
    assert tell.names("b") == []
    assert "StepFailed" not in tell.names("a")
    assert (tell.ended.exit_code, tell.ended.failures) == (ExitCode.INTERRUPTED, ())


def test_a_run_whose_last_step_was_stopped_is_not_done() -> None:
    stop, tell = threading.Event(), Recorder()

    def work(progress: Progress) -> None:
        stop.set()
        until_stopped(progress)

    assert isinstance(stopped_run([make("a", work)], tell, stop), Stopped)
    assert tell.ended.exit_code == ExitCode.INTERRUPTED


def test_nothing_starts_after_a_stop() -> None:
    """The running step does not check whether it should stop; the next one must not start."""
    stop, tell = threading.Event(), Recorder()
    error = stopped_run([make("a", lambda _: stop.set()), make("b", after="a")], tell, stop)
    assert isinstance(error, Stopped)
    assert tell.names("a") == ["StepStarted", "StepDone"]
    assert tell.names("b") == []
    tell = Recorder()
    assert isinstance(stopped_run([make("a")], tell, stop), Stopped)
    assert tell.events == [], "it was stopped before it began"


def test_a_stopped_run_asks_all_running_steps_to_stop() -> None:
    """Also one that reports from a thread of its own, which knows nothing of the stop."""
    stop, ended = threading.Event(), threading.Event()
    both = threading.Barrier(2, timeout=60)

    def first(progress: Progress) -> None:
        both.wait()
        stop.set()
        until_stopped(progress)

    def second(progress: Progress) -> None:
        def report() -> None:
            with pytest.raises(Stopped):
                until_stopped(progress)
            ended.set()

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        both.wait()
        thread.join(60)

    assert isinstance(stopped_run([make("a", first), make("b", second)], Recorder(), stop), Stopped)
    assert ended.is_set()


def test_a_step_that_fails_because_it_is_stopped_does_not_fail_the_run() -> None:
    stop, tell = threading.Event(), Recorder()

    def cut_off(_: Progress) -> None:
        stop.set()
        raise GuestError("the connection is gone")

    assert isinstance(stopped_run([make("a", cut_off)], tell, stop), Stopped)
    assert (tell.ended.exit_code, tell.ended.failures) == (ExitCode.INTERRUPTED, ())


def test_a_failure_before_the_stop_is_what_the_run_raises() -> None:
    stop, tell = threading.Event(), Recorder()
    blocks = threading.Event()

    def block(progress: Progress) -> None:
        blocks.set()
        try:
            until_stopped(progress)
        finally:
            stop.set()  # while the run waits for this step to end

    def fail(_: Progress) -> None:
        blocks.wait(60)
        raise HostError("no")

    error = stopped_run([make("a", block), make("b", fail), make("c", after="a")], tell, stop)
    assert isinstance(error, HostError)
    assert tell.ended.exit_code == ExitCode.HOST
