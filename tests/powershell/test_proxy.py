"""proxy.ps1: kube-proxy as a service."""

from __future__ import annotations

from typing import Any

import pytest
from powershell.cases import PROXY
from powershell.doubles.looks import act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import NET, POLICY, PROXY_NETWORK, SERVICES, VIP_CONFIG, change, joined, proxied, read, service

ENDPOINT = {"ID": "endpoints-1", "Name": "cbr0_ep", "IPAddress": "10.244.2.2", "VirtualNetwork": "networks-1"}
CONFIG_FILE = r"C:\var\lib\kube-proxy\config.yaml"
RECOVERY = [
    "run sc.exe failure kube-proxy reset= 86400 actions= restart/5000/restart/5000/restart/5000",
    "run sc.exe failureflag kube-proxy 1",
]
FOLDER_ACL = r"acl C:\var\lib\kube-proxy O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"
SECRET_ACL = r"acl C:\var\lib\kube-proxy\kubeconfig D:PAI(A;;FA;;;SY)(A;;FA;;;BA)"


def test_kube_proxy_is_a_service_with_the_endpoint_s_address(node: Machine) -> None:
    joined(node)
    others = {**ENDPOINT, "ID": "endpoints-0", "Name": "pod", "IPAddress": "10.244.2.7"}
    change(node, endpoints=[others, ENDPOINT], networks=[{**NET, "ID": "networks-0", "Name": "nat"}, NET])
    ran = act(node, "proxy", PROXY, changed=True, service="running")
    assert ran.changes == {
        CONFIG_FILE: VIP_CONFIG,
        PROXY_NETWORK: "networks-1",
        r"C:\var\lib\kube-proxy\kubeconfig": PROXY["kubeconfig"],
        rf"{SERVICES}\kube-proxy\ImagePath": PROXY["command"],
        "service kube-proxy": "Running Automatic hns",
    }
    new = f"service kube-proxy new: {PROXY['command']}"
    assert ran.notes == [FOLDER_ACL, SECRET_ACL, new, *RECOVERY, "service kube-proxy Running"]
    again = act(node, "proxy", PROXY, changed=False, service="running")
    assert (again.changes, again.notes) == ({}, [FOLDER_ACL, *RECOVERY])


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("config", "kind: Y\nwinkernel:\n  networkName: cbr0\n"),
        ("kubeconfig", "apiVersion: V1\n"),
        ("command", PROXY["command"] + " --v=2"),
    ],
)
def test_a_changed_kube_proxy_is_started_again(node: Machine, part: str, value: str) -> None:
    proxied(node)
    ran = act(node, "proxy", {**PROXY, part: value}, changed=True, service="running")
    assert (ran.notes[0], ran.notes[-1]) == ("service kube-proxy Stopped", "service kube-proxy Running")
    assert len(ran.changes) == 1


def test_a_kube_proxy_whose_change_failed_in_its_middle_is_started_with_it(node: Machine) -> None:
    proxied(node)
    settings = {**PROXY, "kubeconfig": "apiVersion: V1\n"}
    refuse(node, "proxy", settings, "sc.exe failure ended with exit code 77", fail=("sc.exe", 1))
    assert act(node, "proxy", settings, changed=True).notes[-1] == "service kube-proxy Running"


def test_a_kube_proxy_whose_network_was_recreated_is_restarted(node: Machine) -> None:
    """Calico does that when Windows starts. kube-proxy's rules are of the network that is gone."""
    proxied(node)
    assert act(node, "status").told.result["proxy"]["stale"] is False
    change(node, networks=[{**NET, "ID": "networks-2"}])
    assert act(node, "status").told.result["proxy"]["stale"] is True
    ran = act(node, "proxy", PROXY, changed=True, service="running")
    stopped, removed = "service kube-proxy Stopped", "policy list policies-1 removed"
    assert ran.notes == [stopped, removed, FOLDER_ACL, *RECOVERY, "service kube-proxy Running"]
    assert ran.changes == {PROXY_NETWORK: "networks-2", "policies": None}
    assert act(node, "status").told.result["proxy"]["stale"] is False
    assert act(node, "proxy", PROXY, changed=False).changes == {}


def test_a_kube_proxy_that_is_only_changed_keeps_its_rules(node: Machine) -> None:
    proxied(node)
    act(node, "proxy", {**PROXY, "kubeconfig": "apiVersion: V1\n"}, changed=True)
    assert node.state()["policies"] == [POLICY]


@pytest.mark.parametrize(
    ("networks", "noted", "stale"),
    [
        ([NET], None, True),  # an earlier winlab started it
        ([NET], "", True),  # it was started before there was a network
        ([], "networks-1", False),  # the network is just being made
        ([{**NET, "Name": "other", "ID": "networks-2"}], "networks-1", False),
        ([{**NET, "Name": "other", "ID": "networks-2"}, NET], "networks-1", False),
    ],
)
def test_when_kube_proxy_is_stale(
    node: Machine, networks: list[dict[str, Any]], noted: str | None, stale: bool
) -> None:
    proxied(node)
    change(node, networks=networks)
    node.path(PROXY_NETWORK).unlink()
    if noted is not None:
        node.path(PROXY_NETWORK).write_text(noted)
    assert act(node, "status").told.result["proxy"]["stale"] is stale


def test_a_network_created_while_kube_proxy_starts_is_not_mistaken_for_its_own(node: Machine) -> None:
    joined(node)
    change(node, endpoints=[ENDPOINT])
    act(node, "proxy", PROXY, service="running")
    change(node, networks=[NET])
    assert act(node, "status").told.result["proxy"]["stale"] is True


def test_a_kube_proxy_that_does_not_start_yet_is_reported(node: Machine) -> None:
    proxied(node)
    service(node, "kube-proxy", PROXY["command"], "Stopped", broken=True)
    ran = act(node, "proxy", PROXY, changed=False, service="stopped")
    assert "winlab: kube-proxy does not start yet: Failed to start service 'kube-proxy'." in ran.told.out


def test_without_an_endpoint_the_configuration_stays(node: Machine) -> None:
    joined(node)
    act(node, "proxy", {**PROXY, "source_endpoint": None}, service="running")
    assert read(node, CONFIG_FILE) == PROXY["config"]


def test_an_endpoint_that_no_one_creates(node: Machine) -> None:
    joined(node)
    ran = refuse(node, "proxy", PROXY, "There is no HNS endpoint 'cbr0_ep' after half a minute")
    assert ran.changes == {}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({**PROXY, "command": " "}, "settings.command is empty."),
        ({**PROXY, "kubeconfig": ""}, "settings.kubeconfig is empty."),
        ({**PROXY, "config": "\n"}, "settings.config is empty."),
        ({**PROXY, "kubeconfig": "client-key: x"}, "settings.kubeconfig has a client key; kube-proxy gets a token."),
        ({**PROXY, "command": r"C:\k\other.exe"}, r"'C:\k\other.exe' is missing: binaries.ps1 comes first."),
        ({**PROXY, "config": "kind: X\n"}, "settings.config must have a section winkernel without a sourceVip"),
        ({**PROXY, "config": "winkernel:\n  sourceVip: x\n"}, "must have a section winkernel without a sourceVip"),
    ],
)
def test_settings_that_proxy_refuses(node: Machine, settings: dict[str, Any], text: str) -> None:
    proxied(node)
    assert refuse(node, "proxy", settings, text).changes == {}


def test_kube_proxy_s_program_is_missing(node: Machine) -> None:
    proxied(node)
    node.path(r"C:\k\kube-proxy.exe").unlink()
    refuse(node, "proxy", PROXY, r"C:\k\kube-proxy.exe is missing: binaries.ps1 comes first.")
