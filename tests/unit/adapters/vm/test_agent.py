"""What the guest agent is asked for; its answers as evidence are in tests/unit/adapters/guests/test_ways_in.py."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import libvirt
import libvirt_qemu
import pytest

from winlab.adapters.vm import agent
from winlab.errors import UnreachableError

MACHINE: Any = SimpleNamespace(domain="winlab-lab.node-1", uuid="u")


def test_the_clock_is_set_in_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(agent, "find", lambda conn, machine: machine)

    def answer(_domain: object, text: str, *_: object) -> str:
        asked.append(json.loads(text))
        return '{"return":{}}'

    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", answer)
    before = time.time()
    assert agent.set_clock(None, MACHINE, ahead=3600)
    assert [one["execute"] for one in asked] == ["guest-set-time"]
    assert before - 1 <= asked[0]["arguments"]["time"] / 1e9 - 3600 <= time.time() + 1


def test_a_guest_without_an_agent_keeps_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise libvirt.libvirtError("Guest agent is not responding: QEMU guest agent is not connected")

    monkeypatch.setattr(agent, "find", lambda conn, machine: machine)
    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", refuse)
    assert not agent.set_clock(None, MACHINE)


@pytest.mark.parametrize("patience", [30.0, -1.0])
def test_an_answer_about_a_running_program_may_be_missed(monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    answers: Any = iter(['{"return":{"pid":7}}', None, '{"return":{"exited":true,"exitcode":3,"out-data":"eA=="}}'])

    def answer(*_: object) -> str:
        if (text := next(answers)) is None:
            raise libvirt.libvirtError("Guest agent is not responding: Guest agent not available for now")
        return str(text)

    monkeypatch.setattr(agent, "find", lambda conn, machine: machine)
    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", answer)
    monkeypatch.setattr(agent, "POLL", 0)
    monkeypatch.setattr(agent, "SILENCE", patience)
    if patience < 0:
        with pytest.raises(UnreachableError, match="guest-exec-status"):
            agent.execute(None, MACHINE, ["x"])
    else:
        assert agent.execute(None, MACHINE, ["x"]) == (3, b"x", b"")
