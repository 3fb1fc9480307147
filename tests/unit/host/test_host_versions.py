"""The versions that winlab uses on this host, for an archive of support."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winlab.errors import HostError
from winlab.host import state


def test_versions_of_programs_and_of_the_firmware(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"ovs-vsctl": "ovs-vsctl (Open vSwitch) 3.1.0\nDB Schema 8.3.1\n", "dpkg-query": "2022.11-6+deb12u2"}

    def run(words: Any, **_: Any) -> Any:
        if words[0] not in said:
            raise HostError(f"'{words[0]}' is not here.")
        return SimpleNamespace(stdout=said[words[0]])

    monkeypatch.setattr(state, "run", run)
    monkeypatch.setattr(state, "find_emulator_version", lambda: "7.2.9")
    found = state.versions()
    assert (found["QEMU"], found["OVMF"]) == ("7.2.9", "2022.11-6+deb12u2")
    assert found["Open vSwitch"] == "ovs-vsctl (Open vSwitch) 3.1.0"
    assert "OVN" not in found
    del said["dpkg-query"]
    assert "OVMF" not in state.versions()
