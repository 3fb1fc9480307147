"""A wait ends when it is met, and gives up when nothing new is seen for too long."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator

import pytest
import runs

from winlab import stopping
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import StalledError
from winlab.events import Quiet
from winlab.stopping import Stopped


def seen_until_given_up(monkeypatch: pytest.MonkeyPatch, signs: Iterator[Waiting | Met[str]]) -> tuple[float, str]:
    """How long the wait took, and its result; it gives up after 10 seconds of nothing new."""
    clock = runs.clock(monkeypatch)
    begun = clock.now
    try:
        value = wait.until(lambda: next(signs), Quiet(), lambda last: StalledError(last.says), stall=10, poll=1)
    except StalledError as error:
        return clock.now - begun, error.what
    return clock.now - begun, value


def endless(*signs: Hashable) -> Iterator[Waiting]:
    yield from (Waiting(f"sees {sign}", sign) for sign in signs)
    while True:
        yield Waiting(f"sees {signs[-1]}", signs[-1])


def test_a_met_condition_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([Waiting("not yet"), Waiting("not yet"), Met("there")])
    assert seen_until_given_up(monkeypatch, looks) == (2, "there")


def test_a_long_wait_without_news_ends_with_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_until_given_up(monkeypatch, endless(1)) == (11, "sees 1")


def test_it_waits_as_long_as_something_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """No total time ends it."""
    assert seen_until_given_up(monkeypatch, endless(*range(500))) == (499 + 11, "sees 499")


def test_alternating_is_not_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen_until_given_up(monkeypatch, endless(*[1, 2] * 50))[0] == 1 + 11


def test_another_sign_of_life_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([*[Waiting("moves", 1, alive=True)] * 30, *endless_list(12)])
    assert seen_until_given_up(monkeypatch, looks)[0] == 29 + 11


def endless_list(count: int) -> list[Waiting]:
    return [Waiting("still", 1)] * count


def test_a_stopped_wait_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    runs.clock(monkeypatch)

    class Voice:
        def say(self, text: str, fraction: float | None = None) -> None:
            raise Stopped

    with pytest.raises(Stopped):
        wait.until(lambda: Waiting("x"), Voice(), lambda _: StalledError("x"), stall=10)


def test_a_long_pause_ends_when_the_work_is_stopped() -> None:
    """Ctrl-C must end a command within five seconds."""
    stop = threading.Event()

    def look() -> Waiting:
        stop.set()
        return Waiting("x")

    with stopping.by(stop), pytest.raises(Stopped):
        wait.until(look, Quiet(), lambda _: StalledError("x"), stall=100, poll=3600)
