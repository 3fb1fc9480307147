"""When a machine counts as generalized: sysprep has switched it off, and nothing else has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, cast

import answers
import libvirt
import pytest
import runs
from clones import REHEARSAL, Network, make

from winlab.adapters.overlay import ovn
from winlab.adapters.vm.connection import Connection, connected
from winlab.design.contract import on_windows
from winlab.design.contract.call import Call, R
from winlab.engine.step import Step
from winlab.errors import GuestError, HostError, UnreachableError, WinlabError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import golden as goldens
from winlab.site import Site
from winlab.steps import evidence, golden, recipe
from winlab.steps.sources import Supply


class Guest:
    """A machine that accepts no login any more, unless the test says that sysprep does not run in it."""

    def __init__(self) -> None:
        self.answers = False
        self.asked: list[str] = []
        self.noted: list[bool] = []
        self.killed = False
        self.switch_off: Callable[[], object] | None = None  # what sysprep does before the script's answer arrives
        self.note = LabFolder("lab").path
        self.sysprep: dict[str, object] = {}  # what is special in its answer
        self.executed: list[Sequence[str]] = []

    def execute(self, command: Sequence[str]) -> None:
        self.executed.append(command)

    def run(self, call: Call[R], *_: Any) -> R:
        if not self.answers:
            raise UnreachableError("It does not answer.")
        if isinstance(call, on_windows.Seal):
            self.noted.append(self.note.exists())
            if call.begin and self.killed:
                raise KeyboardInterrupt  # as close to a kill as a test can get
            if call.begin and self.switch_off:
                self.switch_off()
                raise UnreachableError("The connection was lost.")
        self.asked.append("look" if isinstance(call, on_windows.Seal) and not call.begin else call.script)
        return answers.result(call, self.sysprep if call.script == "sealed" else {"restart": False})

    def disconnect(self) -> None:
        pass


class Builder:
    """The machine of a build in which sysprep has begun, in libvirt's own mock of a hypervisor; and the step."""

    def __init__(self, conn: Connection) -> None:
        plan = make(REHEARSAL)
        assert plan.builders
        self.plan = plan
        self.lab = plan.builders[0].lab
        folder = LabFolder(self.lab)
        self.note = folder.path / golden.NOTE
        facts = {"restart": False, "build": "20348.2762", "evaluation_minutes": None, "rearms": 3}
        folder.write(self.note, json.dumps({**facts, "time": 1.0}))
        self._conn = conn
        machine = plan.builders[0].nodes[0]
        self._xml = (
            f"<domain type='test'><name>{machine.domain}</name><uuid>{machine.uuid}</uuid><memory>1024</memory>"
            "<os><type>hvm</type></os></domain>"
        )
        self.domain = conn.defineXML(self._xml)
        self.domain.create()
        self.guest = Guest()
        self.guest.note = self.note
        steps = recipe.golden_build(
            runs.run(plan, conn=conn, guest=self.guest), plan.builders, Supply(cast(Any, None)), alone=False
        )
        self.step: Step = runs.titled(steps, "seal golden")

    def forget(self) -> None:
        """The effect of a restart of libvirt: it no longer knows the reason."""
        self.domain.undefine()
        self.domain = self._conn.defineXML(self._xml)
        assert self.domain.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN]


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
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
    assert "same command again" in caught.value.cure
    assert not builder.step.done()


def test_a_sysprep_that_is_faster_than_the_answer_has_sealed_the_machine(builder: Builder) -> None:
    builder.note.unlink()
    builder.guest.answers, builder.guest.switch_off = True, builder.domain.shutdown
    builder.step.run(Quiet())
    assert builder.step.done()


def create_again(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What the next create removes before its steps, and what it says."""
    removed: list[str] = []
    said: list[str] = []

    def remove(lab: str, *_: object) -> list[WinlabError]:
        assert builder.note.exists()  # otherwise a kill here would leave a half-made machine that counts as good
        removed.append(lab)
        return []

    monkeypatch.setattr(goldens.traces, "remove", remove)
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(Network(set())))
    with ExitStack() as held:
        site = Site(libvirt="test:///default")
        assert goldens.lacking(builder.plan, site, lambda _: False, held, lambda event: said.append(str(event)))
    return removed, said


@pytest.mark.parametrize("forgotten", [False, True])  # by libvirt, as after a restart of the host
def test_a_builder_that_lost_its_power_is_rebuilt_by_the_next_create(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    builder.domain.destroy()
    if forgotten:
        builder.forget()
    removed, said = create_again(builder, monkeypatch)
    assert removed == [builder.lab]
    assert "ended while sysprep ran" in said[0]
    assert not builder.note.exists()  # so that all steps of a build are done again
    assert create_again(builder, monkeypatch) == ([], [])


@pytest.mark.parametrize("note", ["", "{", "[]", "null", "{}", '{"build": 5, "finished": true}', "\udcff"])
def test_an_unreadable_note_has_the_image_rebuilt(builder: Builder, monkeypatch: pytest.MonkeyPatch, note: str) -> None:
    builder.domain.shutdown()
    builder.note.write_bytes(note.encode(errors="surrogateescape"))
    assert not builder.step.done()
    assert create_again(builder, monkeypatch)[0] == [builder.lab]


def test_a_builder_whose_machine_is_gone_is_rebuilt(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.domain.destroy()
    builder.domain.undefine()
    assert create_again(builder, monkeypatch)[0] == [builder.lab]
    builder.domain = builder._conn.defineXML(builder._xml)


@pytest.mark.parametrize("state", ["running", "sealed", "sealed, noted", "suspended"])
def test_a_builder_in_which_sysprep_ended_or_is_running_is_kept(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    if state == "suspended":
        builder.domain.suspend()
    elif state != "running":
        builder.domain.shutdown()
        if state == "sealed, noted":
            assert builder.step.done()
            builder.forget()
    assert create_again(builder, monkeypatch) == ([], [])
    assert builder.note.exists()


def test_a_builder_that_can_t_be_removed_keeps_its_note(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.domain.destroy()
    monkeypatch.setattr(goldens.traces, "remove", lambda *_: [HostError("OVN does not answer.")])
    with ExitStack() as held, pytest.raises(HostError, match="OVN"):
        goldens.lacking(builder.plan, Site(libvirt="test:///default"), lambda _: False, held, lambda _: None)
    assert builder.note.exists()


def goes_off(domain: libvirt.virDomain, *, orderly: bool = True) -> None:
    if domain.isActive():
        domain.shutdown() if orderly else domain.destroy()


@pytest.mark.parametrize("orderly", [True, False])
def test_sysprep_is_waited_for_by_the_next_create_too(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    """winlab was killed while sysprep ran."""
    runs.clock(monkeypatch, golden).sleeping = lambda: goes_off(builder.domain, orderly=orderly)
    if orderly:
        builder.step.run(Quiet())
    else:
        with pytest.raises(GuestError, match="interrupted"):
            builder.step.run(Quiet())
    assert builder.step.done() is orderly


def test_a_kill_right_after_sysprep_began_loses_nothing(builder: Builder) -> None:
    """The note with the facts exists before sysprep starts; so the next create waits for the machine to switch off."""
    builder.note.unlink()
    builder.guest.answers = builder.guest.killed = True
    with pytest.raises(KeyboardInterrupt):
        builder.step.run(Quiet())
    assert builder.guest.asked == ["look"]
    assert builder.guest.noted == [False, True]
    builder.domain.shutdown()
    assert builder.step.done()
    assert "build" in json.loads(builder.note.read_text())


def test_a_kill_right_before_sysprep_began_starts_it(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.guest.answers = True
    sleeps = 0

    def slept() -> None:
        nonlocal sleeps
        sleeps += 1
        if "seal" in builder.guest.asked:
            goes_off(builder.domain)

    runs.clock(monkeypatch, golden).sleeping = slept
    builder.step.run(Quiet())
    assert builder.guest.asked[:3] == ["sealed", "sealed", "seal"]
    assert builder.step.done()


HARMLESS = ["BiUpdateEfiEntry failed c000000d"]
GENERALIZED = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"


@pytest.mark.parametrize(
    "sysprep", [{"running": True}, {"state": GENERALIZED}, {"succeeded": True, "state": "IMAGE_STATE_UNDEPLOYABLE"}]
)
def test_errors_in_the_log_of_a_run_that_succeeds_are_not_a_failure(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, sysprep: dict[str, object]
) -> None:
    """sysprep has ended, and Windows still answers for a while before it is off."""
    builder.guest.answers = True
    builder.guest.sysprep = {**sysprep, "errors": HARMLESS}
    clock = runs.clock(monkeypatch, golden)
    clock.sleeping = lambda: goes_off(builder.domain) if clock.now > 300 else None
    builder.step.run(Quiet())
    assert builder.step.done()
    assert builder.guest.executed == []


def test_a_sysprep_that_ended_without_success_has_failed_after_a_minute(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.guest.answers = True
    builder.guest.sysprep = {"errors": ["0x80073cf2"]}
    clock = runs.clock(monkeypatch, golden)
    with pytest.raises(GuestError, match="could not generalize") as caught:
        builder.step.run(Quiet())
    assert 160 < clock.now < 220
    assert "0x80073cf2" in caught.value.why
    assert not builder.note.exists()


def test_a_generalized_windows_that_stays_on_is_switched_off(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.guest.answers = True
    builder.guest.sysprep = {"state": GENERALIZED}
    runs.clock(monkeypatch, golden)
    execute = builder.guest.execute

    def shutting_down(command: Sequence[str]) -> None:
        execute(command)
        builder.domain.shutdown()

    monkeypatch.setattr(builder.guest, "execute", shutting_down)
    builder.step.run(Quiet())
    assert builder.guest.executed == [["shutdown.exe", "/s", "/f", "/t", "0"]]
    assert builder.step.done()
