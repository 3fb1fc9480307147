"""Before sysprep Windows is restarted where something waits for that, and not forever."""

from __future__ import annotations

from typing import Any

import answers
import plans
import pytest
import runs

from winlab.adapters.vm import domains
from winlab.design.contract import on_windows
from winlab.design.contract.call import Call, R
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.steps import golden


class There:
    """A Windows in which something waits for so many restarts."""

    def __init__(self, restarts: int) -> None:
        self.restarts = restarts
        self.starts = 0
        self.asked: list[str] = []

    def run(self, call: Call[R], *_: Any) -> R:
        if call.script == "status":
            return answers.result(call, {"boot_time": str(self.starts), "boot_id": str(self.starts)})
        assert isinstance(call, on_windows.Seal)
        self.asked.append("seal" if call.begin else "look")
        return answers.result(call, {"restart": self.starts < self.restarts})

    def execute(self, command: list[str]) -> str:
        assert command[0].startswith("shutdown.exe /r /f ")
        self.asked.append("restart")
        self.starts += 1
        return ""

    def disconnect(self) -> None:
        pass


def sealing(there: There, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Step]:
    monkeypatch.setattr(domains, "state", lambda *_: "off")
    monkeypatch.setattr(domains, "was_shut_down", lambda *_: True)
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-2022").builders[0]
    assert plan is not None
    run = runs.run(plan, guest=there)
    return run, runs.titled(golden.steps(run, "base-x-0.qcow2", "key", run.on(run.plan.nodes[0])), "seal golden")


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_windows_is_restarted_before_sysprep(restarts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(restarts)
    run, step = sealing(there, monkeypatch)
    step.run(Quiet())
    assert there.asked == ["look", *["restart", "look"] * restarts, "seal"]
    assert golden.is_sealed(run)


def test_windows_is_not_restarted_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(99)
    run, step = sealing(there, monkeypatch)
    with pytest.raises(GuestError, match="still has a restart pending"):
        step.run(Quiet())
    assert there.asked == ["look", "restart", "look", "restart", "look"]
    assert not golden.is_sealed(run)
