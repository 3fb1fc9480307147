"""kubeadm.exe gives containerd two seconds in its preflight check: a machine that is slow then gets another try."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.contract.call import Call, R
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.steps.distribution.kubeadm import credentials
from winlab.steps.windows import node as windows_node

SILENT = "[ERROR {}]: could not connect to the container runtime: rpc error: code = DeadlineExceeded desc = x"
LATE = GuestError("'join' failed", why=SILENT.format("CRI"))
LATER = GuestError(
    "'join' failed", why=f"[preflight] fatal\n\t{SILENT.format('ContainerRuntimeVersion')}\nerror: failed"
)
OTHER = GuestError("'join' failed", why="[ERROR Port-10250]: Port 10250 is in use")
BOTH = GuestError("'join' failed", why=f"{LATE.why}\n{OTHER.why}")
NONE = GuestError("'join' failed", why="kubeadm.exe join ended with exit code 1: rpc error: code = DeadlineExceeded")


class There:
    """A node whose join fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: GuestError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def run(self, call: Call[R], *_: Any) -> R:
        assert call.script == "join"
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return answers.result(call, {})


def join(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "lent", lambda *_: nullcontext(JoinCredentials("a.b", ("x",))))
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    steps = windows_node.steps(runs.run(plan, guest=there), plan.node("node-1"))
    runs.titled(steps, "join node-1").run(Quiet())


def test_an_answer_that_came_too_late_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(LATE, LATER)
    join(there, monkeypatch)
    assert there.calls == 3


@pytest.mark.parametrize(
    ("errors", "calls"), [([LATE] * 4, 4), ([OTHER], 1), ([LATE, OTHER], 2), ([BOTH], 1), ([NONE], 1)]
)
def test_any_other_answer_is_reported(monkeypatch: pytest.MonkeyPatch, errors: list[GuestError], calls: int) -> None:
    there = There(*errors)
    with pytest.raises(GuestError):
        join(there, monkeypatch)
    assert there.calls == calls
