"""What libvirt still does for a winlab that was killed while it saved a machine, and what the next one does then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from winlab import stopping
from winlab.adapters.vm import snapshots
from winlab.adapters.vm.domains import Machine
from winlab.errors import WinlabError

MACHINE: Any = SimpleNamespace(domain="winlab-lab.node-1", uuid="u")
RUNNING = [libvirt.VIR_DOMAIN_RUNNING, 1]
SUSPENDED = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]


class Domain:
    """A domain, and what libvirt does with it: write its memory, or copy its disk."""

    def __init__(self, state: list[int], *, writes: bool = False, copies: int = 0) -> None:
        self.now = state
        self.writes = writes
        self.copies = copies
        self.began = 0
        self.kind = libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_PULL

    def lookupByUUIDString(self, _: str) -> Domain:
        return self

    def name(self) -> str:
        return MACHINE.domain

    def state(self) -> list[int]:
        return self.now

    def abortJob(self) -> None:
        if not self.writes:
            raise libvirt.libvirtError("no job is active on the domain")
        self.writes = False

    def resume(self) -> None:
        if self.writes:
            raise libvirt.libvirtError("cannot acquire state change lock")
        self.now = RUNNING

    def blockJobInfo(self, target: str, _flags: int) -> dict[str, Any]:
        assert target == "sda"
        self.copies -= 1
        return {"type": self.kind, "cur": 4 - self.copies, "end": 4} if self.copies >= 0 else {}

    def blockRebase(self, *_: object) -> None:
        self.began += 1
        self.copies = 3


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "sleep", lambda _: None)


def ended(domain: Any, machine: Machine = MACHINE) -> bool:
    return snapshots.end_save(domain, machine)


@pytest.mark.parametrize("writes", [False, True])
def test_a_machine_that_a_killed_save_paused_runs_again(writes: bool) -> None:
    domain = Domain(SUSPENDED, writes=writes)
    assert ended(domain)
    assert (domain.now, domain.writes) == (RUNNING, False)


def test_a_machine_that_runs_stays_so() -> None:
    domain = Domain(RUNNING)
    assert not ended(domain)
    assert domain.now == RUNNING


def test_a_machine_that_can_not_be_resumed_is_named() -> None:
    domain = Domain(SUSPENDED, writes=True)
    domain.abortJob = lambda: None  # type: ignore[method-assign]
    with pytest.raises(WinlabError, match=r"The domain 'winlab-lab\.node-1' can't be resumed\."):
        ended(domain)


def test_a_disk_that_is_being_copied_is_waited_for() -> None:
    domain: Any = Domain(RUNNING, copies=3)
    seen: list[float] = []
    snapshots.settle(domain, MACHINE, "sda", seen.append)
    assert seen == [0.5, 0.75, 1.0]
    snapshots.settle(domain, MACHINE, "sda", seen.append)
    assert len(seen) == 3


def test_a_copy_of_the_user_s_own_is_left_to_libvirt() -> None:
    """It may never end; libvirt refuses the save, and says why."""
    domain: Any = Domain(RUNNING, copies=99)
    domain.kind = libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COPY
    snapshots.settle(domain, MACHINE, "sda", lambda _: None)
    assert domain.copies == 98


@pytest.mark.parametrize(("copies", "began"), [(0, 1), (3, 0)])
def test_a_copy_that_an_interrupted_command_began_is_not_begun_again(copies: int, began: int) -> None:
    domain: Any = Domain(RUNNING, copies=copies)
    snapshots.flatten(domain, MACHINE, "sda", Any, lambda _: None)  # type: ignore[arg-type]
    assert domain.began == began
