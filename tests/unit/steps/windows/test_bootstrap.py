"""A bootstrap in Windows that fails: the serial port reports it, and winlab names the cure and the log."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import plans
import pytest
import runs

from winlab.adapters.vm import display, domains, first_boot
from winlab.engine.step import Step
from winlab.errors import GuestError, HostError
from winlab.events import Quiet
from winlab.steps import boot, evidence


def booting(monkeypatch: pytest.MonkeyPatch, serial: bytes) -> Step:
    """The step that waits for a Windows whose serial port has said that."""
    pool = SimpleNamespace(exists=lambda _: True, download=lambda _, offset=0: serial[offset:])
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    monkeypatch.setattr(domains, "written_bytes", lambda *_: 1)
    monkeypatch.setattr(display, "look", lambda *_: b"")
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


REFUSAL = "'node-1' refuses the Administrator's password."


class Account:
    """An account that ten wrong passwords lock for ten minutes, as Windows' since October 2022.

    :param right: seconds after which winlab's password is its password.
    """

    def __init__(self, clock: runs.Clock, right: float) -> None:
        self.clock, self.right = clock, right
        self.wrong: list[float] = []
        self.locked_until = 0.0

    def answers(self, login: boot.Login) -> bool:
        now = self.clock.now
        is_right = now >= self.right
        if now >= self.locked_until and not is_right:
            self.wrong = [*(self.wrong if self.wrong and now - self.wrong[-1] < 600 else []), now]
            if len(self.wrong) >= 10:
                self.locked_until, self.wrong = now + 600, []
        answers = is_right and now >= self.locked_until
        login.refusal = None if answers else GuestError(REFUSAL)
        return answers


@pytest.mark.parametrize("right", [3.0, 60.0, 240.0, 600.0])
@pytest.mark.parametrize("phase", ["ready", "specialize"])
def test_an_account_is_not_locked_by_winlab_s_logins(monkeypatch: pytest.MonkeyPatch, right: float, phase: str) -> None:
    """A clone's WinRM may answer before its account has the password that winlab knows."""
    clock = runs.clock(monkeypatch, boot)
    account = Account(clock, clock.now + right)
    monkeypatch.setattr(boot.Login, "answers", lambda self: account.answers(self))
    booting(monkeypatch, f"winlab: phase={phase}\r\n".encode()).run(Quiet())
    assert account.locked_until == 0.0


def test_a_lasting_refusal_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = runs.clock(monkeypatch, boot)
    begun, account = clock.now, Account(clock, 1e9)
    monkeypatch.setattr(evidence, "collect", no_evidence)
    monkeypatch.setattr(boot.Login, "answers", lambda self: account.answers(self))
    with pytest.raises(GuestError) as caught:
        booting(monkeypatch, b"winlab: phase=ready\r\n").run(Quiet())
    assert caught.value.what == REFUSAL
    assert clock.now - begun >= boot.LOCKED_SECONDS
    assert account.locked_until == 0.0
    assert "destroy the lab and create it again" in caught.value.cure


def test_a_locked_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Windows answers to a login does not say so; its beacon does."""
    clock = runs.clock(monkeypatch, boot)
    account = Account(clock, 1e9)
    monkeypatch.setattr(evidence, "collect", no_evidence)
    monkeypatch.setattr(boot.Login, "answers", lambda self: account.answers(self))
    beacon = b"winlab: phase=ready\r\nwinlab: beacon 1 addresses=10.77.0.101 boot=3 account=locked\r\n"
    with pytest.raises(GuestError, match="has locked the Administrator's account") as caught:
        booting(monkeypatch, beacon).run(Quiet())
    assert caught.value.why.startswith(REFUSAL)
    assert caught.value.cure.startswith("Wait for ten minutes")


def no_evidence(*_: object) -> None:
    raise HostError("no libvirt")


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("no such file", "Destroy the lab and create it again; or fix the cause in the guest"),
        ("the firewall takes no inbound rules in the profile Public", "Remove that setting from the template"),
    ],
)
def test_a_failed_bootstrap(monkeypatch: pytest.MonkeyPatch, error: str, cure: str) -> None:
    serial = f"winlab: phase=specialize\r\nwinlab: error=bootstrap: {error}\r\n".encode()
    monkeypatch.setattr(evidence, "collect", no_evidence)
    step = booting(monkeypatch, serial)
    with pytest.raises(GuestError, match="bootstrap in 'node-1' failed") as caught:
        step.run(Quiet())
    assert caught.value.why.splitlines()[0] == f"bootstrap: {error}"
    assert caught.value.cure.startswith(cure)
    assert caught.value.cure.endswith("and then the same command.")
    assert caught.value.evidence == r"winlab serial node-1 --log; in the guest C:\winlab\bootstrap.log"
