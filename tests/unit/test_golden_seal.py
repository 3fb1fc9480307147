<<<<<<< HEAD
"""When a machine counts as generalized: sysprep has switched it off, and nothing else has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import libvirt
import plans
import pytest
from clones import REHEARSAL, make

from winlab import goldens
=======
"""Before sysprep Windows is restarted where something waits for that, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import plans
import pytest

>>>>>>> f561371 (Before sysprep Windows is restarted where something waits for that, at most twice)
from winlab.durations import Durations
from winlab.engine import Step
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.state import LabState
<<<<<<< HEAD
from winlab.steps import Context, evidence, golden
from winlab.steps.supply import Supply
from winlab.vm.connection import Connection, connected


class Builder:
    """The machine of a build in which sysprep has begun, in libvirt's own mock of a hypervisor; and the step."""

    def __init__(self, conn: Connection) -> None:
        plan = make(REHEARSAL)
        assert plan.builder is not None
        self.lab = plan.builder.lab
        state = LabState(self.lab)
        self.note = state.folder / golden.SEALED
        state.write(self.note, json.dumps({"build": "20348.2762"}))
        self._conn = conn
        self._xml = (
            f"<domain type='test'><name>{plan.builder.nodes[0].domain}</name><memory>1024</memory>"
            "<os><type>hvm</type></os></domain>"
        )
        self.domain = conn.defineXML(self._xml)
        self.domain.create()
        context = Context(plan, LabState("lab"), conn, cast(Any, None), None, 1.0, Durations("tcg"))
        self.step: Step = goldens.build_steps(context, plan.builder, Supply(cast(Any, None)), alone=False)[0]

    def forget(self) -> None:
        """What a new start of libvirt does: it knows no reason any more."""
        self.domain.undefine()
        self.domain = self._conn.defineXML(self._xml)
        assert self.domain.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN]


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    plans.fixed_keys(monkeypatch)
    monkeypatch.setattr(evidence, "keep", lambda *_: None)
    with connected("test:///default") as conn:
        made = Builder(conn)
        yield made
        if made.domain.isActive():
            made.domain.destroy()
        made.domain.undefine()


def test_a_machine_that_sysprep_switched_off_is_sealed_even_when_libvirt_has_forgotten_why(builder: Builder) -> None:
    assert not builder.step.done()
    builder.domain.shutdown()
    assert builder.step.done()
    builder.forget()
    assert builder.step.done()
    assert json.loads(builder.note.read_text())["build"] == "20348.2762"


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_machine_that_lost_its_power_is_not_sealed(builder: Builder, forgotten: bool) -> None:
    builder.domain.destroy()
    if forgotten:
        builder.forget()
    assert not builder.step.done()
    with pytest.raises(GuestError, match="interrupted") as caught:
        builder.step.run(Quiet())
    assert f"winlab destroy --lab {builder.lab}" in caught.value.cure
    assert not builder.step.done()


@pytest.mark.parametrize("orderly", [True, False])
def test_sysprep_is_waited_for_by_the_next_create_too(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    """winlab was killed while sysprep ran."""
    end = builder.domain.shutdown if orderly else builder.domain.destroy
    monkeypatch.setattr(golden.time, "sleep", lambda _: end())
    if orderly:
        builder.step.run(Quiet())
    else:
        with pytest.raises(GuestError, match="interrupted"):
            builder.step.run(Quiet())
    assert builder.step.done() is orderly
=======
from winlab.steps import Context, golden, linux_nodes
from winlab.vm import domains


class There:
    """A Windows in which something waits for so many restarts."""

    def __init__(self, restarts: int) -> None:
        self.restarts = restarts
        self.starts = 0
        self.asked: list[str] = []

    def run(self, script: str, *_: Any) -> dict[str, Any]:
        if script == "status":
            return {"boot_time": str(self.starts), "boot_id": str(self.starts)}
        self.asked.append(script)
        return {"restart": True} if self.starts < self.restarts else {"restart": False, "build": "20348.1"}

    def execute(self, command: list[str]) -> str:
        assert command == ["shutdown.exe /r /t 0"]
        self.asked.append("restart")
        self.starts += 1
        return ""

    def disconnect(self) -> None:
        pass


def sealing(there: There, monkeypatch: pytest.MonkeyPatch) -> tuple[Context, Step]:
    @contextmanager
    def connected(*_: Any) -> Iterator[There]:
        yield there

    plans.fixed_keys(monkeypatch)
    monkeypatch.setattr(linux_nodes, "connected", connected)
    monkeypatch.setattr(domains, "state", lambda *_: "off")
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-2022").builder
    assert plan is not None
    context = Context(plan, LabState(plan.lab), cast(Any, None), cast(Any, None), None, 1.0, Durations("tcg"))
    insert = Step("insert golden", lambda _: None, lambda: True)
    (step,) = [step for step in golden.steps(context, insert, "base-x-0.qcow2", "key") if step.name == "seal golden"]
    return context, step


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_windows_is_restarted_before_sysprep(restarts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(restarts)
    context, step = sealing(there, monkeypatch)
    step.run(Quiet())
    assert there.asked == ["seal", *["restart", "seal"] * restarts]
    assert golden.is_sealed(context)


def test_windows_is_not_restarted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    there = There(99)
    context, step = sealing(there, monkeypatch)
    with pytest.raises(GuestError, match="again and again"):
        step.run(Quiet())
    assert there.asked == ["seal", "restart", "seal", "restart", "seal"]
    assert not golden.is_sealed(context)
>>>>>>> f561371 (Before sysprep Windows is restarted where something waits for that, at most twice)
