"""A bootstrap in Windows that fails: the serial port reports it, and winlab names the cure and the log."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import plans
import pytest
import runs

from winlab.adapters.vm import domains, first_boot
from winlab.engine.step import Step
from winlab.errors import GuestError, HostError
from winlab.events import Quiet
from winlab.steps import boot, evidence


def booting(monkeypatch: pytest.MonkeyPatch, serial: bytes) -> Step:
    """The step that waits for a Windows whose serial port has said that."""
    pool = SimpleNamespace(exists=lambda _: True, download=lambda _, offset=0: serial[offset:])
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    monkeypatch.setattr(domains, "written_bytes", lambda *_: 1)
    monkeypatch.setattr(domains, "look", lambda *_: b"")
    monkeypatch.setattr(first_boot, "is_marked", lambda *_: False)
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    return boot.step(runs.run(plan, pool=pool), plan.node("node-1"), None)


def test_a_node_that_is_ready_and_cannot_say_so_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its serial port may be held by another program, or missing."""
    clock = runs.clock(monkeypatch, boot)
    asked: list[float] = []

    def answers(self: boot.Login) -> bool:
        asked.append(clock.now)
        self.refusal = GuestError("'node-1' refuses the Administrator's password.")
        return len(asked) > 5

    monkeypatch.setattr(boot.Login, "answers", answers)
    booting(monkeypatch, b"winlab: phase=specialize\r\n").run(Quiet())
    assert len(asked) == 6
    assert all(later - earlier >= boot.ASK for earlier, later in pairwise(asked))


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("no such file", "Destroy the lab and create it again; or fix the cause in the guest"),
        ("the firewall takes no inbound rules in the profile Public", "Remove that setting from the template"),
    ],
)
def test_a_failed_bootstrap(monkeypatch: pytest.MonkeyPatch, error: str, cure: str) -> None:
    def collect(*_: object) -> None:
        raise HostError("no libvirt")

    serial = f"winlab: phase=specialize\r\nwinlab: error=bootstrap: {error}\r\n".encode()
    monkeypatch.setattr(evidence, "collect", collect)
    step = booting(monkeypatch, serial)
    with pytest.raises(GuestError, match="bootstrap in 'node-1' failed") as caught:
        step.run(Quiet())
    assert caught.value.why.splitlines()[0] == f"bootstrap: {error}"
    assert caught.value.cure.startswith(cure)
    assert caught.value.cure.endswith("and then the same command.")
    assert caught.value.evidence == r"winlab serial node-1 --log; in the guest C:\winlab\bootstrap.log"
