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
