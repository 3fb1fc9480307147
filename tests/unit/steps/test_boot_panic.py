"""A kernel that panics while winlab waits for it, and a machine that restarts repeatedly."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import runs

from winlab.adapters.vm import display, domains, first_boot, power
from winlab.design.plan.facts import HostFacts
from winlab.engine.run import Outputs
from winlab.engine.step import Step
from winlab.errors import GuestError, HostError, StalledError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.steps import boot, evidence, screens, serial
from winlab.stopping import Stopped

GRUB = "\x1b[2JBdsDxe: loading Boot0001\r\nWelcome to GRUB!\r\n"
PANIC = (
    "[    5.725737] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\r\n"
    "[    5.750774] Kernel panic - not syncing: Fatal exception in interrupt\r\n"
    "[    9.813612] Kernel Offset: 0x2aa00000 from 0xffffffff81000000\r\n"
    "[    9.851529] ---[ end Kernel panic - not syncing: Fatal exception in interrupt ]---\r\n"
)


class Guest:
    """It panics so many times, and answers then."""

    def __init__(self, panics: int) -> None:
        self.panics = panics
        self.serial = ""
        self.resets = -1
        self.marked, self.disks = False, 1
        self.reset()

    def reset(self, *_: object) -> None:
        self.resets += 1
        self.serial += GRUB + (PANIC if self.resets < self.panics else "")

    def start_over(self, *_: object) -> None:
        self.disks += 1
        self.serial = ""
        self.reset()

    def unmark(self, *_: object) -> None:
        self.marked = False


def nothing(*_: object) -> None:
    raise HostError("no libvirt")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(evidence, "collect", nothing)
    runs.clock(monkeypatch, boot, serial)

    def begin(guest: Guest, host: HostFacts, node: str = "controller-1") -> Step:
        def download(_: str, offset: int = 0, most: int = 1 << 20) -> bytes:
            return guest.serial.encode()[offset : offset + most]

        pool = SimpleNamespace(exists=lambda _: True, download=download)
        monkeypatch.setattr(domains, "state", lambda *_: "running")
        monkeypatch.setattr(power, "reset", guest.reset)
        monkeypatch.setattr(domains, "written_bytes", lambda *_: 0)
        monkeypatch.setattr(display, "look", lambda *_: b"")
        monkeypatch.setattr(boot.Login, "answers", lambda _: guest.resets == guest.panics)
        monkeypatch.setattr(first_boot, "is_marked", lambda *_: guest.marked)
        monkeypatch.setattr(first_boot, "unmark", guest.unmark)
        monkeypatch.setattr(boot, "start_over", guest.start_over)
        plan = plans.make(host, "1-1-1" if node.startswith("node") else "1-0-1")
        return boot.step(runs.run(plan, pool=pool), plan.node(node), None)

    return begin


class Looping(Guest):
    """It never leaves a phase: each look finds another start."""

    def __init__(self) -> None:
        super().__init__(panics=99)
        self.serial = "winlab: phase=windowsPE\r\n"

    def written(self, *_: object) -> int:
        self.serial += 'BdsDxe: starting Boot0003 "Windows Boot Manager" from HD(1)\r\nwinlab: phase=specialize\r\n'
        return len(self.serial)


def test_a_machine_that_restarts_repeatedly_is_reported(
    started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each start is something new on the serial port, so the wait would never end."""
    guest, said = Looping(), []
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    step = started(guest, plans.KVM, "node-1")
    monkeypatch.setattr(domains, "written_bytes", guest.written)
    monkeypatch.setattr(display, "look", lambda *_: b"P6\n4 2\n255\n" + bytes(24))
    monkeypatch.setattr(evidence, "collect", lambda *_: (tmp_path, ["Setup: 0x80070570"]))
    with pytest.raises(StalledError, match="6 times in phase 'specialize'") as caught:
        step.run(SimpleNamespace(say=lambda text, _part=None: said.append(text)))
    assert any("it has started 3 times in this phase" in text for text in said)
    assert len(list(screens.folder(LabFolder("lab"), "node-1").iterdir())) == 1
    assert "The medium is damaged." in caught.value.why


def test_an_emulated_one_is_started_again(started: Any) -> None:
    guest = Guest(panics=boot.RESETS)
    started(guest, plans.TCG).run(Quiet())
    assert guest.resets == boot.RESETS


@pytest.mark.parametrize(("host", "resets"), [(plans.TCG, boot.RESETS), (plans.KVM, 0)], ids=["emulated", "kvm"])
def test_a_machine_that_panics_repeatedly_is_reported(started: Any, host: HostFacts, resets: int) -> None:
    guest = Guest(panics=99)
    with pytest.raises(GuestError, match="panicked") as caught:
        started(guest, host).run(Quiet())
    assert caught.value.why == ("Fatal exception in interrupt; before it: Oops: int3: 0000 [#1] PREEMPT SMP NOPTI")
    assert guest.resets == resets


def test_evidence_of_a_panic_is_kept(started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def collect(_context: object, node: Any, *_: object) -> tuple[Path, str]:
        return tmp_path / node.name, ""

    monkeypatch.setattr(evidence, "collect", collect)
    with pytest.raises(GuestError) as caught:
        started(Guest(panics=99), plans.KVM).run(Quiet())
    assert caught.value.evidence.startswith(f"{tmp_path}/controller-1; winlab serial controller-1")


@pytest.mark.parametrize("trouble", [HostError("no libvirt"), OSError("disk full"), Stopped()])
def test_a_panic_is_reported_without_evidence_too(
    started: Any, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def collect(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(evidence, "collect", collect)
    with pytest.raises(GuestError, match="panicked") as caught:
        started(Guest(panics=99), plans.KVM).run(Quiet())
    assert "winlab serial controller-1" in caught.value.evidence


def test_an_old_panic_does_not_count(started: Any) -> None:
    guest = Guest(panics=0)
    guest.serial = GRUB + PANIC + guest.serial
    started(guest, plans.TCG).run(Quiet())
    assert guest.resets == 0


def test_one_that_panics_in_its_first_boot_starts_over(started: Any) -> None:
    guest = Guest(panics=1)
    guest.marked, guest.serial = True, "winlab: phase=cloud-init\r\n" + guest.serial
    step = started(guest, plans.TCG)
    assert not step.done()
    step.run(Quiet())
    assert (guest.resets, guest.disks, guest.marked) == (1, 2, False)
    assert step.done()


@pytest.mark.parametrize("phase", ["", "winlab: phase=ready\r\n"], ids=["before anything is written", "later"])
def test_another_panic_leaves_the_disk(started: Any, phase: str) -> None:
    guest = Guest(panics=1)
    guest.marked, guest.serial = True, phase + guest.serial
    started(guest, plans.TCG).run(Quiet())
    assert (guest.resets, guest.disks) == (1, 1)


CUT_OFF = "winlab: phase=cloud-init\r\nwinlab: phase=cloud-init\r\nwinlab: phase=ready\r\n"
FINE = CUT_OFF[26:]


@pytest.mark.parametrize(
    ("marked", "phases", "fresh", "disks"),
    [
        (True, CUT_OFF, False, 2),
        (False, CUT_OFF, False, 1),
        (True, FINE, False, 1),
        (True, FINE + CUT_OFF[:26], False, 1),
        (True, CUT_OFF, True, 1),
        (True, CUT_OFF[:52], False, 1),
    ],
    ids=["cut off", "used since", "deaf", "restarted later", "started by this command", "still booting"],
)
def test_a_machine_that_was_started_manually_after_an_interrupted_first_boot(
    started: Any, monkeypatch: pytest.MonkeyPatch, marked: bool, phases: str, fresh: bool, disks: int
) -> None:
    """It reported readiness long ago, and has no network."""
    guest = Guest(panics=0)
    guest.marked, guest.serial, guest.resets = marked, phases, 1
    monkeypatch.setattr(Outputs, "get", lambda *_: fresh)
    step = started(guest, plans.KVM)
    guest.panics = guest.resets + 1  # it answers after one more start
    with suppress(StalledError) if disks == 1 else nullcontext():
        step.run(Quiet())
    assert guest.disks == disks
    assert guest.marked == (marked and disks == 1)
