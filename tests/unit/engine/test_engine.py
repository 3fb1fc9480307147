import signal
import threading
import time

import pytest

from winlab.engine import engine
from winlab.engine.engine import Step
from winlab.errors import GuestError
from winlab.events import Event, Kind, Progress


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self, step: str) -> list[Kind]:
        return [e.kind for e in self.events if e.step == step and e.kind is not Kind.CHECKING]


def nothing(progress: Progress) -> None:
    progress.say("working")


def never() -> bool:
    return False


def test_order_and_events() -> None:
    seen: list[str] = []
    tell = Recorder()
    engine.run(
        [
            Step("b", lambda p: seen.append("b"), never, needs=("a",)),
            Step("a", lambda p: seen.append("a"), never),
            Step("c", lambda p: seen.append("c"), never, needs=("b",)),
        ],
        tell,
    )
    assert seen == ["a", "b", "c"]
    assert tell.kinds("b") == [Kind.STARTED, Kind.DONE]


def test_what_is_done_is_not_run() -> None:
    tell = Recorder()

    def explode(progress: Progress) -> None:
        raise AssertionError

    engine.run([Step("a", explode, lambda: True), Step("b", nothing, never, needs=("a",))], tell)
    assert tell.kinds("a") == [Kind.SKIPPED]
    assert tell.kinds("b") == [Kind.STARTED, Kind.PROGRESS, Kind.DONE]


def test_independent_steps_run_at_once() -> None:
    barrier = threading.Barrier(2, timeout=10)
    engine.run([Step(n, lambda p: barrier.wait() and None, never) for n in "ab"], Recorder())


def test_a_failure_stops_the_rest_and_is_raised() -> None:
    started = threading.Event()
    ended: list[str] = []

    def fail(progress: Progress) -> None:
        started.wait(10)
        raise GuestError("no")

    def wait_for_ever(progress: Progress) -> None:
        started.set()
        try:
            while True:
                progress.say("waiting")
                time.sleep(0.01)
        finally:
            ended.append("waiter")

    tell = Recorder()
    with pytest.raises(GuestError, match="no"):
        engine.run(
            [
                Step("fail", fail, never),
                Step("wait", wait_for_ever, never),
                Step("after", nothing, never, needs=("fail",)),
            ],
            tell,
        )
    assert ended == ["waiter"]
    assert tell.kinds("after") == []
    assert Kind.FAILED in tell.kinds("fail")
    assert Kind.FAILED not in tell.kinds("wait")


def test_several_failures_are_all_told() -> None:
    barrier = threading.Barrier(2, timeout=10)

    def fail(progress: Progress) -> None:
        barrier.wait()
        raise GuestError("no")

    with pytest.raises(GuestError) as caught:
        engine.run([Step("a", fail, never), Step("b", fail, never)], Recorder())
    assert len(caught.value.causes) == 1


def test_an_interrupt_stops_running_steps() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    ended = threading.Event()

    def wait_for_ever(progress: Progress) -> None:
        try:
            while True:
                progress.say("waiting")
                time.sleep(0.01)
        finally:
            ended.set()

    def interrupt(event: Event) -> None:
        if event.kind is Kind.DONE:
            import _thread

            _thread.interrupt_main()

    try:
        with pytest.raises(KeyboardInterrupt):
            engine.run([Step("wait", wait_for_ever, never), Step("quick", nothing, never)], interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


@pytest.mark.parametrize(
    "steps",
    [
        [Step("a", nothing, never), Step("a", nothing, never)],
        [Step("a", nothing, never, needs=("b",)), Step("b", nothing, never, needs=("a",))],
        [Step("a", nothing, never, needs=("nowhere",))],
    ],
)
def test_plans_that_could_never_end_are_bugs(steps: list[Step]) -> None:
    with pytest.raises(AssertionError):
        engine.run(steps, Recorder())
