"""A machine whose kernel crashed: the code of its bugcheck is reported, as an event and in the failure."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import libvirt
import libvirt_qemu
import plans
import pytest
import runs
import sites
from lab_fakes import machine

from winlab.adapters.vm import crash, domains, power
from winlab.adapters.vm.crash import Crash
from winlab.errors import GuestError, HostError
from winlab.events import Event, NodeCrashed, Quiet, Told
from winlab.steps import boot, crashed, evidence, serial
from winlab.steps.power import shutdown, switch

CPUS = {"return": [{"qom-path": "/machine/unattached/device[0]"}, {"qom-path": "/machine/unattached/device[2]"}]}
STOP = {"type": "hyper-v", "arg1": 0x7B, "arg2": -4, "arg3": 0xC0000034, "arg4": 0, "arg5": 0}
MACHINE = machine("node-1")


class Qemu:
    """A machine and its monitor: the report of each processor, by its number; None: it has none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *told: Any, state: int = libvirt.VIR_DOMAIN_CRASHED) -> None:
        self.told = told
        self.asked: list[str] = []
        domain = SimpleNamespace(state=lambda: [state, libvirt.VIR_DOMAIN_CRASHED_PANICKED])
        monkeypatch.setattr(crash, "find", lambda *_: domain)
        monkeypatch.setattr(libvirt_qemu, "qemuMonitorCommand", self.ask)

    def ask(self, _domain: object, text: str, _flags: int) -> str:
        question = json.loads(text)
        self.asked.append(question["execute"])
        if question["execute"] == "query-cpus-fast":
            return json.dumps(CPUS)
        paths = [one["qom-path"] for one in CPUS["return"]]
        answer = self.told[paths.index(question["arguments"]["path"])]
        if answer is None:
            raise libvirt.libvirtError("No crash occurred")
        return answer if isinstance(answer, str) else json.dumps({"return": answer})


def test_the_stopped_processor_has_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    Qemu(monkeypatch, None, STOP)
    assert crash.read(None, MACHINE) == Crash(0x7B, ((1 << 64) - 4, 0xC0000034, 0, 0))


@pytest.mark.parametrize("told", [None, {"type": "s390"}, {"type": "hyper-v", "arg1": "7"}, "no json", {"a": 1}, [1]])
def test_a_machine_without_a_code_has_still_crashed(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    Qemu(monkeypatch, told, None)
    assert crash.read(None, MACHINE) == Crash()


def test_a_running_machine_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = Qemu(monkeypatch, STOP, None, state=libvirt.VIR_DOMAIN_RUNNING)
    assert crash.read(None, MACHINE) is None
    assert qemu.asked == []


@pytest.mark.parametrize(
    ("code", "says", "name"),
    [
        (0x7B, "bugcheck 0x0000007B INACCESSIBLE_BOOT_DEVICE (", "INACCESSIBLE_BOOT_DEVICE"),
        (0x1000008E, "0x1000008E KERNEL_MODE_EXCEPTION_NOT_HANDLED (", "KERNEL_MODE_EXCEPTION_NOT_HANDLED"),
        (0x777, "bugcheck 0x00000777 (", ""),
    ],
)
def test_a_code_has_its_name(code: int, says: str, name: str) -> None:
    event = crashed.told("node-1", Crash(code, (1, 0xABC, 0, 0)))
    assert says in event.text
    assert (event.name, event.arguments) == (name, ("0x1", "0xABC", "0x0", "0x0"))


def test_a_wait_ends_with_the_bugcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows stops with a blue screen while winlab waits for it: a typed event, and the failure has the code."""
    Qemu(monkeypatch, STOP, None)
    monkeypatch.setattr(domains, "state", lambda *_: domains.CRASHED)
    kept: list[str] = []
    monkeypatch.setattr(evidence, "keep", lambda *arguments: kept.append(arguments[3].what))
    runs.clock(monkeypatch, boot, serial)
    plan = plans.make(plans.KVM, "1-1-1")
    heard: list[Event] = []
    with pytest.raises(GuestError, match="0x0000007B INACCESSIBLE_BOOT_DEVICE") as caught:
        boot.step(runs.run(plan), plan.node("node-1"), None).run(Told(heard.append, "boot node-1"))
    (event,) = (one for one in heard if isinstance(one, NodeCrashed))
    assert (event.step, event.node, event.code) == ("boot node-1", "node-1", "0x0000007B")
    assert "workers.bus=sata" in caught.value.cure
    assert "0xC0000034" in caught.value.why
    assert kept == [caught.value.what]


@pytest.mark.parametrize(("code", "cure"), [(0x1000007A, "the pool's free space"), (0x777, "bug check code reference")])
def test_a_code_has_its_cure(monkeypatch: pytest.MonkeyPatch, code: int, cure: str) -> None:
    Qemu(monkeypatch, {**STOP, "arg1": code}, None)
    with pytest.raises(GuestError) as caught:
        crashed.require_no_crash(None, "lab", SimpleNamespace(name="node-1", domain="x"), Quiet())  # type: ignore[arg-type]
    assert cure in caught.value.cure


def test_a_text_listener_gets_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Voice(Quiet):
        heard = ""

        def say(self, text: str, fraction: float | None = None) -> None:
            del fraction
            self.heard = text

    Qemu(monkeypatch, STOP, None)
    voice = Voice()
    with pytest.raises(GuestError):
        crashed.require_no_crash(None, "lab", SimpleNamespace(name="node-1", domain="x"), voice)  # type: ignore[arg-type]
    assert "0x0000007B" in voice.heard


class Domain:
    """A domain that crashed, and stays as it is."""

    def __init__(self) -> None:
        self.now = libvirt.VIR_DOMAIN_CRASHED
        self.done: list[str] = []

    def isActive(self) -> bool:
        return self.now != libvirt.VIR_DOMAIN_SHUTOFF

    def state(self) -> list[int]:
        return [self.now, 0]

    def destroy(self) -> None:
        self.now = libvirt.VIR_DOMAIN_SHUTOFF
        self.done.append("destroy")

    def name(self) -> str:
        return "x"

    def create(self) -> None:
        assert not self.isActive(), "libvirt refuses to start a domain with a process"
        self.now = libvirt.VIR_DOMAIN_RUNNING
        self.done.append("create")


def test_the_same_command_starts_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain()
    monkeypatch.setattr(domains, "get", lambda *_: domain)
    power.start(None, MACHINE)
    power.start(None, MACHINE)
    assert domain.done == ["destroy", "create"]


def test_a_crash_between_two_commands_is_reported_when_the_machine_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    Qemu(monkeypatch, STOP, None)
    domain = Domain()
    monkeypatch.setattr(domains, "get", lambda *_: domain)
    heard: list[Event] = []
    lab = SimpleNamespace(name="lab")
    subject = SimpleNamespace(
        name="node-1",
        domain="x",
        state=domains.CRASHED,
        lab=lab,
        host=sites.hypervisor(),
        at=lambda kind: kind("lab", "n"),
    )
    switch.start(subject).run(Told(heard.append, "start"))  # type: ignore[arg-type]
    assert [one.code for one in heard if isinstance(one, NodeCrashed)] == ["0x0000007B"]
    assert domain.done == ["destroy", "create"]
    assert subject.booted


def test_it_can_not_be_asked_to_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain()
    monkeypatch.setattr(domains, "get", lambda *_: domain)
    subject = SimpleNamespace(name="node-1", domain="x", state=domains.CRASHED, host=sites.hypervisor())
    shutdown.shut_down(subject, Quiet())  # type: ignore[arg-type]
    assert domain.done == ["destroy"]


def test_a_question_that_libvirt_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise libvirt.libvirtError("client socket is closed")

    monkeypatch.setattr(crash, "find", lambda *_: SimpleNamespace(state=lost))
    with pytest.raises(HostError):
        crash.read(None, MACHINE)
