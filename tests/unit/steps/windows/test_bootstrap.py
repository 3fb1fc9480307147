"""A bootstrap in Windows that fails: the serial port reports it, and winlab names the cure and the log."""

from __future__ import annotations

from types import SimpleNamespace

import plans
import pytest
import runs

from winlab.adapters.vm import domains
from winlab.errors import GuestError, HostError
from winlab.events import Quiet
from winlab.steps import boot, evidence


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
    pool = SimpleNamespace(exists=lambda _: True, download=lambda _, offset=0: serial[offset:])
    monkeypatch.setattr(evidence, "collect", collect)
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    step = boot.step(runs.run(plan, pool=pool), plan.node("node-1"), None)
    with pytest.raises(GuestError, match="bootstrap in 'node-1' failed") as caught:
        step.run(Quiet())
    assert caught.value.why == f"bootstrap: {error}"
    assert caught.value.cure.startswith(cure)
    assert caught.value.evidence == r"winlab serial node-1 --log; in the guest C:\winlab\bootstrap.log"
