"""Steps put together: a misfit is refused before anything starts, and the error names both."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from winlab.engine import engine
from winlab.engine.state import Kind, State
from winlab.engine.step import Step, compose
from winlab.errors import SequenceError
from winlab.events import Event

KIND = Kind("made", lambda state: f"make {state.node}")
A, B, C, D = (KIND("lab", name) for name in "abcd")
CIRCLE = "Steps wait for each other: 'make a' after 'make b', 'make b' after 'make a'."


def step(reaches: State, after: Iterable[State] = (), also: Iterable[State] = ()) -> Step:
    return Step(reaches, lambda _: None, lambda: False, after, also)


def test_steps_run_after_those_that_reach_what_they_need() -> None:
    order = compose([step(C, [B]), step(B, iter([A])), step(A)])
    assert [one.reaches for one in order] == [A, B, C]


def test_a_state_may_be_reached_on_the_way() -> None:
    order = compose([step(C, [B]), step(A, also=[B])])
    assert [one.title for one in order] == ["make a", "make c"]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([step(A), step(A)], "Two steps reach the state made (a, lab): 'make a' and 'make a'."),
        ([step(A), step(B, also=[A])], "Two steps reach the state made (a, lab): 'make a' and 'make b'."),
        ([step(A, [B])], "The step 'make a' waits for the state made (b, lab), and no step reaches it."),
        ([step(A, [A])], "Steps wait for each other: 'make a' after 'make a'."),
        ([step(D), step(A, [B, D]), step(B, [A])], CIRCLE),
        ([step(C, [A]), step(A, [B]), step(B, [A])], CIRCLE),
    ],
)  # fmt: skip
def test_steps_that_do_not_fit_together_are_refused(steps: list[Step], says: str) -> None:
    with pytest.raises(SequenceError) as refused:
        compose(steps)
    assert refused.value.what == says
    assert "a bug" in refused.value.why


def test_the_engine_starts_nothing() -> None:
    told: list[Event] = []
    with pytest.raises(SequenceError):
        engine.run([step(A), step(B, [C])], told.append)
    assert told == []


def test_states_differ_by_lab_node_and_thing() -> None:
    states = {KIND("lab", "a"), KIND("lab", "b"), KIND("other", "a"), KIND(of="a"), KIND(of="b")}
    assert len(states) == 5
    # the words are only for users
    assert Kind("made", lambda _: "x")("lab", "a") in states
