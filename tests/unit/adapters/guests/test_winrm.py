"""WinRM to a node that falls silent: an interrupt does not wait for it."""

from __future__ import annotations

import threading
import time
from typing import Any

import plans
import pytest
from winrm.exceptions import WinRMOperationTimeoutError, WSManFaultError

from winlab import stopping
from winlab.adapters.guests import winrm
from winlab.adapters.guests.winrm import WinRmGuest
from winlab.cli import signals
from winlab.design.plan import tags
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder


class Protocol:
    """A guest's WinRM. After *answers* requests for output it falls silent."""

    answers = 0

    def __init__(self, **options: Any) -> None:
        self.operation_timeout_sec = options["operation_timeout_sec"]
        self.asked: list[str] = []
        self.over = threading.Event()

    def open_shell(self, codepage: int, idle_timeout: str) -> str:
        return "shell"

    def run_command(self, shell: str, line: str, *, console_mode_stdin: bool) -> str:
        return "command"

    def get_command_output_raw(self, shell: str, command: str) -> tuple[bytes, bytes, int, bool]:
        self.asked.append(f"output {self.operation_timeout_sec}")
        if self.asked.count(f"output {winrm.OUTPUT_SECONDS}") > self.answers:
            self.over.wait(60)
        time.sleep(0.1)
        raise WinRMOperationTimeoutError

    def cleanup_command(self, shell: str, command: str) -> None:
        self.asked.append(f"cleanup {self.operation_timeout_sec}")

    def close_shell(self, shell: str) -> None:
        self.asked.append("close")


@pytest.mark.parametrize("answers", [0, 1000])
def test_an_interrupt_ends_it_within_seconds(monkeypatch: pytest.MonkeyPatch, answers: int) -> None:
    plan, folder = plans.make(plans.TCG), LabFolder("lab")
    folder.ensure_credentials(plan)
    node = next(node for node in plan.nodes if node.os == "windows")
    monkeypatch.setattr(winrm, "Protocol", Protocol)
    monkeypatch.setattr(Protocol, "answers", answers)
    assert winrm.OUTPUT_SECONDS + 1 < signals.WHOLE  # time to end the command in the guest, and to log out
    assert winrm.OUTPUT_SECONDS < winrm.GRACE < signals.WHOLE
    monkeypatch.setattr(winrm, "GRACE", 1.0)
    guest = WinRmGuest(tags.of(plan, node), folder, 30)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    begun = time.monotonic()
    with stopping.by(stop):
        with pytest.raises(stopping.Stopped):
            guest.execute(["seal"])
        guest.close()
    assert time.monotonic() - begun < 4
    protocol: Protocol = guest._protocol
    # a guest that answers is asked to end the command; one that does not is left alone
    assert ("cleanup 20" in protocol.asked, "close" in protocol.asked) == (answers > 0, answers > 0)
    protocol.over.set()


class Faulty(Protocol):
    """A guest's WinRM that answers with a fault of WSMan."""

    fault = 0

    def run_command(self, shell: str, line: str, *, console_mode_stdin: bool) -> str:
        raise WSManFaultError(500, "Bad HTTP response", "", "The shell was not found", wsman_fault_code=self.fault)


@pytest.mark.parametrize(("fault", "kind"), [(2150858843, UnreachableError), (2150858770, GuestError)])
def test_a_shell_that_a_restart_took_away_is_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch, fault: int, kind: type[GuestError]
) -> None:
    plan, folder = plans.make(plans.TCG), LabFolder("lab")
    folder.ensure_credentials(plan)
    monkeypatch.setattr(winrm, "Protocol", Faulty)
    monkeypatch.setattr(Faulty, "fault", fault)
    guest = WinRmGuest(tags.of(plan, plan.node("node-1")), folder, 30)
    with pytest.raises(GuestError) as caught:
        guest.execute(["hostname"])
    assert type(caught.value) is kind
