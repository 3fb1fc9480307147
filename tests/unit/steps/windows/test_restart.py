"""Windows is restarted even if a user is logged on, or its answer is cut off."""

from __future__ import annotations

from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.contract import on_windows
from winlab.design.contract.call import Call, R
from winlab.errors import GuestCommandError, GuestError, UnreachableError
from winlab.events import Quiet
from winlab.steps.windows import node as windows_node
from winlab.steps.windows import probe


class Node:
    """Restarts when it is asked to, and answers with *error* then."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.starts = 0

    def run(self, call: Call[R], *_: Any) -> R:
        if call.script == "features":
            return answers.result(call, {"restart": self.starts == 0})
        return answers.result(call, {"boot_time": str(self.starts), "boot_id": str(self.starts)})

    def execute(self, command: list[str]) -> str:
        (line,) = command
        assert {"/r", "/f"} <= set(line.split())  # otherwise error 1191 while Administrator is logged on
        self.starts += 1
        if self.error is not None:
            raise self.error
        return ""

    def disconnect(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "check", lambda *_: None)


def restarted(error: Exception | None) -> Node:
    node = Node(error)
    plan = plans.make(plans.KVM, "1-1-1")
    steps = windows_node.steps(runs.run(plan, guest=node), plan.node("node-1"))
    runs.titled(steps, "features node-1").run(Quiet())
    return node


@pytest.mark.parametrize(
    "error",
    [
        None,
        UnreachableError("'node-1' does not answer WinRM.", why="cut off"),
        GuestError("WinRM on 'node-1' refuses the request.", why="the shell was not found"),
        GuestCommandError("A command in 'node-1' ended with exit code 1115.", code=1115),
        GuestCommandError("A command in 'node-1' ended with exit code 1190.", code=1190),
    ],
)
def test_the_start_counts_and_not_the_answer(error: Exception | None) -> None:
    assert restarted(error).starts == 1


def test_a_refusal_is_reported() -> None:
    with pytest.raises(GuestError, match="exit code 5"):
        restarted(GuestCommandError("A command in 'node-1' ended with exit code 5.", code=5, why="Access is denied."))


def test_a_refusal_with_a_known_cause_names_it() -> None:
    with pytest.raises(GuestError, match="exit code 1191") as caught:
        restarted(GuestCommandError("A command in 'node-1' ended with exit code 1191.", code=1191, why="It said no."))
    assert "someone is logged on" in caught.value.why


T0, T1, NEAR = "2026-11-22T10:00:00Z", "2026-11-22T10:02:01Z", "2026-11-22T10:01:59Z"


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        ((T0, "17"), (T1, "18"), True),
        ((T0, "17"), (T0, "17"), False),
        ((T0, "17"), (T0, "18"), True),  # a Windows whose clock was set back to what it was
        ((T0, "17"), (T1, "17"), True),  # it does not count its starts
        ((T1, "17"), (T0, "17"), True),
        ((T0, "17"), (NEAR, "17"), False),  # a corrected clock
        ((NEAR, "17"), (T0, "17"), False),
        ((T0, T0), (NEAR, NEAR), False),  # there is no counter: the time stands for it
        ((T0, T0), (T1, T1), True),
        ((T0, "17"), (T0, T0), False),
        ((T0, ""), (T0, "17"), False),
        (("soon", "17"), ("later", "17"), False),
        (("0001-01-01T00:00:00", "17"), (T0, "17"), False),  # a year that no clock counts from
    ],
)
def test_a_start_is_recognized_by_its_number_or_a_later_boot_time(
    before: tuple[str, str], after: tuple[str, str], restarted: bool
) -> None:
    first, second = (
        answers.result(on_windows.WindowsStatus(), {"boot_time": time, "boot_id": number})
        for time, number in (before, after)
    )
    assert windows_node._restarted(first, second) is restarted
