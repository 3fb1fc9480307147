"""What inspections report of a lab's network."""

from __future__ import annotations

import os

import pytest
from standing import Standing, only, reported

from winlab.adapters.overlay.differences import Difference
from winlab.events import Quiet


def test_rows(lab: Standing) -> None:
    lab.overlay.differs = [
        Difference("NAT dnat_and_snat 1.2.3.4 10.77.0.11", "there", ""),
        Difference("Logical_Switch_Port stray", "", "there", foreign=True),
        Difference("DHCP_Options 10.77.0.0/24: options", "a=b", "a=c"),
    ]
    findings = lab.findings()
    assert reported([one.drift for one in findings]) == [
        ("", "NAT dnat_and_snat 1.2.3.4 10.77.0.11", "there", "none", True),
        ("", "Logical_Switch_Port stray", "none", "there", False),
        ("", "DHCP_Options 10.77.0.0/24: options", "a=b", "a=c", True),
    ]
    assert "left alone" in findings[1].drift.action
    for one in findings:
        if one.repair is not None:
            one.repair(Quiet())
    assert lab.overlay.repaired == 1  # one change repairs all of them
    assert [one.what for one in lab.drifts()] == ["Logical_Switch_Port stray"]


def test_a_port_of_the_switch_is_named_by_its_node(lab: Standing) -> None:
    """ux N19: repair named 'Logical_Switch_Port 9bf1f3a5-...', of no node."""
    port = lab.plan.node("node-1").port
    lab.overlay.differs = [
        Difference(f"Logical_Switch_Port {port}", "there", ""),
        Difference(f"Logical_Switch_Port {port}: addresses", "a", "b"),
        Difference(f"Logical_Switch_Port {port}-other", "", "there", foreign=True),
    ]
    assert reported(lab.drifts()) == [
        ("node-1", "port in OVN", "there", "none", True),
        ("node-1", "port in OVN: addresses", "a", "b", True),
        ("", f"Logical_Switch_Port {port}-other", "none", "there", False),
    ]
    assert [one.node for one in lab.drifts("controller-1")] == [""]


def test_daemons_that_do_not_follow(lab: Standing) -> None:
    lab.overlay.follows = False
    assert reported(lab.drifts()) == [
        ("", "OVN's daemons", "follow the database", "OVN's northd does not follow.", False)
    ]


@pytest.mark.parametrize(
    ("user", "trouble", "repairable"), [(0, "is down", True), (0, "is missing", False), (1, "is down", False)]
)
def test_the_bridge(lab: Standing, monkeypatch: pytest.MonkeyPatch, user: int, trouble: str, repairable: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    lab.bridge = trouble
    lab.guests["node-1"].answers = False  # an unreachable guest is not asked
    assert reported(lab.drifts()) == [("", "bridge br-winlab", "172.31.240.1/20", trouble, repairable)]
    assert repairable or "sudo winlab host setup" in lab.drifts()[0].action
    monkeypatch.setenv("WINLAB_OVN_NB", "tcp:192.0.2.1:6641")  # another host's bridge can't be seen
    assert [one.what for one in lab.drifts()] == ["login"]


@pytest.mark.parametrize("user", [0, 1])
def test_the_firewall(lab: Standing, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    lab.firewall = "is missing"
    finding = only(lab.findings())
    assert reported([finding.drift]) == [
        ("", "firewall table inet winlab", "as setup writes it", "is missing", user == 0)
    ]
    if finding.repair is None:
        assert finding.drift.action == "run 'sudo winlab host setup'"
        return
    finding.repair(Quiet())
    assert lab.drifts() == []


def test_a_port_that_is_not_bound(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    node = lab.plan.node("node-1")
    lab.overlay.up[node.port] = False
    lab.change("node-1", f'<mac address="{node.mac}"/>', f'<mac address="{node.mac}"/><target dev="vnet7"/>', live=True)
    drift = only(lab.findings()).drift
    assert (drift.node, drift.actual, drift.repairable) == ("node-1", "not bound", True)
    lab.plugged[node.port] = "vnet7"  # it exists, so plugging it in does not help
    assert not lab.drifts()[0].repairable
    lab.states[node.domain] = "off"  # its port is gone with it
    assert [one.what for one in lab.drifts()] == ["state"]
