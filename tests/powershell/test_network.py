"""cni.ps1, network.ps1 and routes.ps1: the network of a worker's pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from powershell.cases import CNI, NETWORK, PROXY, ROUTES
from powershell.doubles.looks import Left, Ran, act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import (
    NET,
    POLICY,
    PROXY_NETWORK,
    VIP_CONFIG,
    change,
    joined,
    json_of,
    read,
    ready,
    service,
    write,
)

ACL = r"acl C:\winlab O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)"
CONFLIST = r"C:\etc\cni\net.d\10-winlab.conflist"
TASK = (
    r"powershell.exe; -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:\winlab\network.ps1; at startup; "
    "SYSTEM ServiceAccount Highest; AllowStartIfOnBatteries DontStopIfGoingOnBatteries StartWhenAvailable"
)
ENDPOINT = {"ID": "endpoints-1", "Name": "cbr0_ep", "IPAddress": "10.244.2.2", "VirtualNetwork": "networks-1"}
FORWARDING = "interface 4 mtu=0 forwarding=Enabled"
OVERLAY = {"type": "Overlay", "name": "vxlan0", "subnet": "10.244.2.0/24", "gateway": "10.244.2.1", "vni": 4096}


def hns(ran: Ran) -> list[str]:
    """What was asked of HNS, without what only looks, and of the interfaces."""
    return [line for line in ran.notes if line.startswith(("hns ", "interface")) and not line.startswith("hns GET")]


def made(node: Machine) -> None:
    """The pod network is there, as cni.ps1 leaves it."""
    joined(node)
    node.state(node.state() | {"networks": [NET], "endpoints": [ENDPOINT]})
    state = node.state()
    state["adapters"][0]["addresses"].append("10.244.2.2")
    node.state(state)
    write(node, r"C:\winlab\network.json", json.dumps(NETWORK))
    write(node, r"C:\winlab\common.ps1", (node.d / "scripts/common.ps1").read_text())
    write(node, r"C:\winlab\services.ps1", (node.d / "scripts/services.ps1").read_text())
    write(node, r"C:\winlab\network.ps1", (node.d / "scripts/network.ps1").read_text())


def run_network(node: Machine, code: int = 0, fail: tuple[str, int] | None = None) -> Ran:
    """network.ps1, as its task runs it at a start of Windows."""
    left = Left(node)
    Machine.ran |= {"common", "network"}
    told = node.ask({"script": str(node.c / "winlab/network.ps1")}, fail=fail)
    assert told.code == code, (told.out, told.err)
    return Ran(told, left.changes(), left.notes())


def test_a_bridged_network_is_made_by_a_task(node: Machine) -> None:
    joined(node)
    ran = act(node, "cni", CNI, changed=True)
    ran.changes.pop(r"C:\winlab\network.log")
    row = {**NET, "ManagementIP": "10.77.0.12", "NetworkAdapterName": "Ethernet"}
    assert json.loads(str(ran.changes.pop("networks"))) == [row]
    assert json.loads(str(ran.changes.pop("endpoints"))) == [{**ENDPOINT, "Attached": True}]
    assert json.loads(str(ran.changes.pop(r"C:\winlab\network-state.json"))) == {"state": "done", "id": "networks-1"}
    assert json.loads(str(ran.changes.pop(r"C:\winlab\network.json"))) == NETWORK
    assert ran.changes == {
        CONFLIST: CNI["files"]["10-winlab.conflist"],  # type: ignore[index]
        r"C:\etc\cni\net.d": None,
        r"C:\winlab\cni.json": '{"files":["10-winlab.conflist"]}',
        r"C:\winlab\common.ps1": r"= D:\scripts\common.ps1",
        r"C:\winlab\network.ps1": r"= D:\scripts\network.ps1",
        r"C:\winlab\services.ps1": r"= D:\scripts\services.ps1",
        "task winlab-network": TASK,
    }
    subnet = '{"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.1"}'
    new = f'{{"Name": "cbr0", "NetworkAdapterName": "Ethernet", "Subnets": [{subnet}], "Type": "L2Bridge"}}'
    endpoint = '{"IPAddress": "10.244.2.2", "Name": "cbr0_ep", "VirtualNetwork": "networks-1"}'
    assert hns(ran) == [
        f"hns POST /networks/ {new}",
        "interface 4 mtu=1450 forwarding=",
        f"hns POST /endpoints/ {endpoint}",
        'hns POST /endpoints/endpoints-1/attach {"CompartmentId": 1, "SystemType": "Host"}',
        FORWARDING,
        FORWARDING,
    ]
    assert ran.notes[0] == ACL
    again = act(node, "cni", CNI, changed=False)
    assert (again.changes, again.notes) == ({}, [ACL])


def test_an_overlay_network_has_its_number_and_no_endpoint(node: Machine) -> None:
    joined(node)
    ran = act(node, "cni", {"files": {}, "network": OVERLAY}, changed=True)
    subnet = {"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.1"}
    data = {"Name": "vxlan0", "Subnets": [{**subnet, "Policies": [{"Type": "VSID", "VSID": 4096}]}], "Type": "Overlay"}
    assert hns(ran) == [f"hns POST /networks/ {json.dumps(data, sort_keys=True)}", FORWARDING]


def test_the_network_is_restored_when_windows_starts(node: Machine) -> None:
    made(node)
    ran = run_network(node)
    attach = 'hns POST /endpoints/endpoints-1/attach {"CompartmentId": 1, "SystemType": "Host"}'
    assert hns(ran) == [attach, FORWARDING, FORWARDING]
    assert json_of(node, r"C:\winlab\network-state.json") == {"state": "done", "id": "networks-1"}


def proxying(node: Machine, status: str = "Running") -> None:
    """kube-proxy is there, started for the network that is."""
    write(node, r"C:\var\lib\kube-proxy\config.yaml", VIP_CONFIG)
    write(node, PROXY_NETWORK, NET["ID"])
    service(node, "kube-proxy", PROXY["command"], status, ("hns",))
    change(node, policies=[POLICY])


def proxy_notes(ran: Ran) -> list[str]:
    return [line for line in ran.notes if line.startswith(("service", "policy"))]


def test_a_start_of_windows_leaves_a_kube_proxy_of_the_same_network(node: Machine) -> None:
    made(node)
    proxying(node)
    assert proxy_notes(run_network(node)) == []


@pytest.mark.parametrize("lost", [[], [{**NET, "Type": "Overlay"}]])
def test_a_recreated_network_has_kube_proxy_restarted(node: Machine, lost: list[dict[str, Any]]) -> None:
    made(node)
    proxying(node)
    change(node, networks=lost, hns_gone=0 if lost else 1)
    ran = run_network(node)
    assert proxy_notes(ran) == [
        "service kube-proxy Stopped",
        "policy list policies-1 removed",
        "service kube-proxy Running",
    ]
    (network,) = node.state()["networks"]
    assert read(node, PROXY_NETWORK) == network["ID"] == "networks-2"
    assert json_of(node, r"C:\winlab\network-state.json") == {"state": "done", "id": "networks-2"}
    assert proxy_notes(run_network(node)) == []


def test_a_kube_proxy_that_does_not_run_is_not_started(node: Machine) -> None:
    """It takes the network that it finds; starting it is the part of proxy.ps1."""
    made(node)
    proxying(node, "Stopped")
    change(node, networks=[], hns_gone=1)
    assert proxy_notes(run_network(node)) == []
    assert read(node, PROXY_NETWORK) == "networks-1"


def test_a_network_exists_even_if_kube_proxy_does_not_restart(node: Machine) -> None:
    made(node)
    proxying(node)
    service(node, "kube-proxy", PROXY["command"], depends=("hns",), broken=True)
    change(node, networks=[], hns_gone=1)
    ran = run_network(node)
    assert json_of(node, r"C:\winlab\network-state.json") == {"state": "done", "id": "networks-2"}
    assert "kube-proxy is not started again: Failed to start" in str(ran.changes[r"C:\winlab\network.log"])
    assert read(node, PROXY_NETWORK) == "networks-1"


@pytest.mark.parametrize("busy", [1, 7])
def test_hns_may_be_later_than_the_script(node: Machine, busy: int) -> None:
    made(node)
    change(node, hns_busy=busy)
    ran = run_network(node)
    assert ran.notes.count("hns GET /networks/ ") == busy + 1


def test_an_hns_that_never_answers(node: Machine) -> None:
    made(node)
    change(node, hns_busy=1000)
    ran = run_network(node, 1)
    said = {"state": "failed", "error": "There is no answer of HNS after a minute."}
    assert json_of(node, r"C:\winlab\network-state.json") == said
    assert "There is no answer of HNS after a minute." in str(ran.changes[r"C:\winlab\network.log"])


@pytest.mark.parametrize(
    "part",
    [
        {"Type": "Overlay"},
        {"Subnets": [{"AddressPrefix": "10.244.9.0/24", "GatewayAddress": "10.244.2.1"}]},
        {"Subnets": [{"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.9"}]},
    ],
)
def test_a_different_network_is_recreated(node: Machine, part: dict[str, Any]) -> None:
    made(node)
    change(node, networks=[{**NET, **part}])
    ran = run_network(node)
    assert hns(ran)[0] == "hns DELETE /networks/networks-1 "
    assert hns(ran)[1].startswith("hns POST /networks/ {")


def test_networks_of_others_stay(node: Machine) -> None:
    made(node)
    change(node, networks=[{**NET, "ID": "networks-0", "Name": "nat"}, NET])
    assert not any("DELETE" in line for line in run_network(node).notes)


@pytest.mark.parametrize("part", [{"IPAddress": "10.244.2.9"}, {"VirtualNetwork": "networks-9"}])
def test_a_different_endpoint_is_recreated(node: Machine, part: dict[str, str]) -> None:
    made(node)
    others = {**ENDPOINT, "ID": "endpoints-0", "Name": "pod"}
    change(node, endpoints=[others, {**ENDPOINT, **part}])
    ran = run_network(node)
    assert hns(ran)[0] == "hns DELETE /endpoints/endpoints-1 "
    assert hns(ran)[1].startswith("hns POST /endpoints/ {")
    assert "/attach" in hns(ran)[2]


ATTACH = "POST /endpoints/endpoints-1/attach"
ATTACHED = 0x803B0014  # HCN_E_ENDPOINT_ALREADY_ATTACHED
GERMAN = "Dieser Endpunkt ist bereits an den Switch angefuegt."


def without_address(node: Machine) -> None:
    """The endpoint's address is on no adapter."""
    state = node.state()
    state["adapters"][0]["addresses"].remove("10.244.2.2")
    node.state(state)


@pytest.mark.parametrize("language", ["en-US", "fr-FR"])
def test_an_endpoint_that_is_still_attached_after_a_restart(node: Machine, language: str) -> None:
    made(node)
    change(node, endpoints=[{**ENDPOINT, "Attached": True}], language=language)
    ran = run_network(node)
    assert sum("/attach" in line for line in ran.notes) == 1
    assert json_of(node, r"C:\winlab\network-state.json") == {"state": "done", "id": "networks-1"}


@pytest.mark.parametrize(
    ("refusal", "known"),
    [
        ("The endpoint is already attached to the switch.", True),
        ({"text": GERMAN, "code": ATTACHED}, True),
        ({"text": GERMAN, "code": ATTACHED - (1 << 32)}, True),
        ({"code": ATTACHED, "bare": True}, True),
        (GERMAN, False),
    ],
)
def test_hns_says_that_an_endpoint_is_attached_in_its_own_language(
    node: Machine, refusal: str | dict[str, Any], known: bool
) -> None:
    """By its code or in English it is understood; otherwise by the address. Then only the adapter is waited for."""
    made(node)
    change(node, hns_errors={ATTACH: refusal})
    run_network(node)
    without_address(node)
    run_network(node, 1)
    error = json_of(node, r"C:\winlab\network-state.json")["error"]  # type: ignore[index]
    if known:
        assert error == "There is no adapter with the address 10.244.2.2 after a minute."
    else:
        assert error == f"HNS refuses {ATTACH}: {GERMAN}"


@pytest.mark.parametrize("times", [1, 19])
def test_a_new_endpoint_may_not_be_attachable_at_once(node: Machine, times: int) -> None:
    """The virtual switch is still coming up."""
    joined(node)
    change(node, hns_errors={ATTACH: {"text": "Element not found.", "code": 0x80070490, "times": times}})
    ran = act(node, "cni", CNI, changed=True)
    assert sum("/attach" in line for line in ran.notes) == times + 1


@pytest.mark.parametrize(
    "request_line",
    ["POST /endpoints/endpoints-1/attach", "GET /endpoints/"],
)
def test_a_refusal_of_hns_is_reported(node: Machine, request_line: str) -> None:
    made(node)
    without_address(node)
    for refusal, shown in (
        ("Element not found.", "Element not found."),
        ({"text": "Element not found. ", "code": 0x80070490}, "Element not found. (0x80070490)"),
        ({"code": 0x80070490, "bare": True}, "(0x80070490)"),
    ):
        change(node, hns_errors={request_line: refusal})
        run_network(node, 1)
        said = {"state": "failed", "error": f"HNS refuses {request_line}: {shown}"}
        assert json_of(node, r"C:\winlab\network-state.json") == said


def test_a_failed_start_of_the_transcript_is_reported(node: Machine) -> None:
    """Stop-Transcript, which throws then, must not take its place; a step that waits for the network gets the error."""
    made(node)
    ran = run_network(node, 1, fail=("Start-Transcript", 1))
    assert ran.told.err == ["it failed on purpose"]
    assert json_of(node, r"C:\winlab\network-state.json") == {"state": "failed", "error": "it failed on purpose"}


def test_a_network_that_hns_refuses_fails_cni(node: Machine) -> None:
    joined(node)
    change(node, hns_errors={"POST /networks/": "The parameter is incorrect."})
    text = "The network 'cbr0' could not be made: HNS refuses POST /networks/: The parameter is incorrect."
    refuse(node, "cni", CNI, text)
    assert not node.path(CONFLIST).exists()
    change(node, hns_errors={})
    act(node, "cni", CNI, changed=True)


def test_a_task_that_leaves_nothing(node: Machine) -> None:
    joined(node)
    change(node, dead_tasks=["winlab-network"])
    text = r"The network 'cbr0' is not made after three minutes; see C:\winlab\network.log."
    refuse(node, "cni", CNI, text)


def test_results_of_an_earlier_task_are_not_trusted(node: Machine) -> None:
    """The outcome of another network: it goes before the task is started."""
    made(node)
    write(node, r"C:\winlab\network-state.json", '{"state":"done","id":"networks-1"}')
    change(node, dead_tasks=["winlab-network"])
    other = {**NETWORK, "subnet": "10.244.7.0/24"}
    refuse(node, "cni", {**CNI, "network": other}, "is not made after three minutes")
    assert not node.path(r"C:\winlab\network-state.json").exists()


@pytest.mark.parametrize("state", ["Running", "Ready"])
def test_a_cut_connection_a_second_run_waits_for_the_task_that_runs(node: Machine, state: str) -> None:
    joined(node)
    act(node, "cni", CNI)
    node.path(r"C:\winlab\network-state.json").unlink()
    change(node, task_states=[state], dead_tasks=["winlab-network"], networks=[])
    text = "is not made after three minutes"
    ran = refuse(node, "cni", CNI, text)
    begun = "task winlab-network started" in ran.notes
    assert begun == (state == "Ready")


def test_a_second_run_uses_the_result_of_the_task(node: Machine) -> None:
    joined(node)
    act(node, "cni", CNI)
    done = read(node, r"C:\winlab\network-state.json")
    node.path(r"C:\winlab\network-state.json").unlink()
    path = node.path(r"C:\winlab\network-state.json")
    finish = {"state": "Running", "does": f"[System.IO.FileInfo]::new('{path}').CreateText().Dispose()"}
    change(node, task_states=[finish], dead_tasks=["winlab-network"])
    refuse(node, "cni", CNI, "is not made after three minutes")
    path.write_text(done)
    assert "task winlab-network started" not in act(node, "cni", CNI, changed=False).notes


@pytest.mark.parametrize("lost", ["network", "outcome"])
def test_a_network_that_is_lost_is_made_again(node: Machine, lost: str) -> None:
    joined(node)
    act(node, "cni", CNI)
    if lost == "network":
        change(node, networks=[])
    else:
        write(node, r"C:\winlab\network-state.json", '{"state":"failed","error":"x"}')
    ran = act(node, "cni", CNI, changed=True)
    assert "task winlab-network started" in ran.notes


def test_an_adapter_that_is_not_there(node: Machine) -> None:
    joined(node)
    network = {**NETWORK, "node_address": "10.99.0.1"}
    refuse(node, "cni", {**CNI, "network": network}, "There is no adapter with the address 10.99.0.1 after a minute.")


def test_configurations_come_and_go_and_others_stay(node: Machine) -> None:
    joined(node)
    write(node, r"C:\etc\cni\net.d\other.conf", "{}")
    act(node, "cni", {"files": {"a.conf": "{}", "b.conf": "{}"}, "network": None}, changed=True)
    ran = act(node, "cni", {"files": {"b.conf": '{"b":1}', "c.json": "{}"}, "network": None}, changed=True)
    folder = r"C:\etc\cni\net.d"
    kept = sorted(json.loads(str(ran.changes.pop(r"C:\winlab\cni.json")))["files"])
    assert kept == ["b.conf", "c.json"]
    assert ran.changes == {rf"{folder}\a.conf": None, rf"{folder}\b.conf": '{"b":1}', rf"{folder}\c.json": "{}"}
    assert act(node, "cni", {"files": {"b.conf": '{"b":1}', "c.json": "{}"}}, changed=False).changes == {}
    node.path(rf"{folder}\c.json").unlink()
    ran = act(node, "cni", {"files": {"b.conf": '{"b":1}'}}, changed=False)
    assert list(ran.changes) == [r"C:\winlab\cni.json"]


def test_files_are_noted_before_they_are_written(node: Machine) -> None:
    """A run that ends in its middle leaves nothing that the next one would not know of."""
    joined(node)
    act(node, "cni", {"files": {"a.conf": "{}"}})
    text = "it failed on purpose"
    # Write-Text moves its file into its place: cni.json is the first of them
    refuse(node, "cni", {"files": {"b.conf": "{}"}}, text, fail=("Move-Item", 2))
    assert sorted(json_of(node, r"C:\winlab\cni.json")["files"]) == ["a.conf", "b.conf"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"files": {"a.txt": "{}"}}, "'a.txt' is no name of a CNI configuration."),
        ({"files": {"a\\b.conf": "{}"}}, "is no name of a CNI configuration."),
        ({"files": {"a.conf": "{"}}, "'a.conf' is no JSON."),
        ({"network": {**NETWORK, "type": "NAT"}}, "settings.network.type is 'NAT', not L2Bridge or Overlay."),
        ({"network": {**NETWORK, "name": ""}}, "settings.network.name is missing."),
        ({"network": {**NETWORK, "subnet": ""}}, "settings.network.subnet is missing."),
        ({"network": {**NETWORK, "gateway": ""}}, "settings.network.gateway is missing."),
        ({"network": {**NETWORK, "subnet": "fd00::/64"}}, "settings.network.subnet is no IPv4 network: 'fd00::/64'."),
        ({"network": {**OVERLAY, "vni": 4095}}, "settings.network.vni must be 4096 or more on Windows."),
        ({"network": {**NETWORK, "endpoint": {"name": "x"}}}, "settings.network.endpoint must have a name and an"),
        ({"network": {**NETWORK, "endpoint": {"address": "x"}}}, "settings.network.endpoint must have a name and an"),
    ],
)
def test_settings_that_cni_refuses(node: Machine, settings: dict[str, Any], text: str) -> None:
    joined(node)
    assert refuse(node, "cni", settings, text).changes == {}


def test_they_come_after_the_join(node: Machine) -> None:
    ready(node)
    for script, settings in (("cni", CNI), ("routes", {"routes": ROUTES}), ("proxy", PROXY)):
        ran = refuse(node, script, settings, "This node has not joined a cluster: join.ps1 comes first.")
        assert (ran.changes, ran.notes) == ({}, [])


# -- routes


def test_routes_are_added_changed_and_removed(node: Machine) -> None:
    joined(node)
    ran = act(node, "routes", {"routes": ROUTES}, changed=True)
    assert json.loads(str(ran.changes.pop(r"C:\winlab\routes.json"))) == {"routes": ROUTES}
    assert ran.changes == {"routes": "10.244.1.0/24 10.77.0.11\n10.244.3.0/25 10.77.0.13\n"}
    one = "run route.exe -p ADD 10.244.1.0 MASK 255.255.255.0 10.77.0.11"
    two = "run route.exe -p ADD 10.244.3.0 MASK 255.255.255.128 10.77.0.13"
    assert ran.notes == [ACL, one, two]
    ran = act(node, "routes", {"routes": ROUTES}, changed=False)
    assert (ran.changes, ran.notes) == ({}, [ACL])
    moved = [{"to": "10.244.1.0/24", "via": "10.77.0.14"}, {"to": "10.0.0.0/9", "via": "10.77.0.15"}]
    ran = act(node, "routes", {"routes": moved}, changed=True)
    assert sorted(ran.notes[1:3]) == [one.replace("ADD", "DELETE"), two.replace("ADD", "DELETE")]
    assert ran.notes[3:] == [
        "run route.exe -p ADD 10.0.0.0 MASK 255.128.0.0 10.77.0.15",
        one.replace("0.11", "0.14"),
    ]
    assert json_of(node, r"C:\winlab\routes.json") == {"routes": moved[::-1]}


def test_routes_that_someone_else_removed(node: Machine) -> None:
    joined(node)
    act(node, "routes", {"routes": ROUTES})
    (node.folder / "routes.txt").write_text("")
    ran = act(node, "routes", {"routes": []}, changed=False)
    assert not any("route.exe" in line for line in ran.notes)
    (node.folder / "routes.txt").write_text("10.244.1.0/24 10.77.0.99\n")
    assert act(node, "routes", {"routes": ROUTES[:1]}, changed=True).notes[1].endswith("0.11")


@pytest.mark.parametrize("store", ["ActiveStore", "PersistentStore"])
def test_a_route_in_one_store_counts_as_present(node: Machine, store: str) -> None:
    """An adapter that HNS recreates loses its active routes for a while; Windows brings them back from the other."""
    joined(node)
    (node.folder / "routes.txt").write_text(f"10.244.1.0/24 10.77.0.11 {store}\n")
    assert act(node, "routes", {"routes": ROUTES[:1]}, changed=False).notes == [ACL]


def test_an_added_route_that_is_missing(node: Machine) -> None:
    joined(node)
    node.program(node.bin / "route.exe", "")
    text = "There is no route to 10.244.1.0/24 by 10.77.0.11, though route.exe has added it."
    refuse(node, "routes", {"routes": ROUTES}, text)
    rows = json_of(node, r"C:\winlab\routes.json")["routes"]  # type: ignore[index]
    assert rows == ROUTES


def test_a_route_exe_that_fails_is_tried_again_by_the_next_run(node: Machine) -> None:
    joined(node)
    refuse(node, "routes", {"routes": ROUTES}, "route.exe -p ended with exit code 77", fail=("route.exe", 2))
    act(node, "routes", {"routes": []}, changed=True)
    assert (node.folder / "routes.txt").read_text() == ""


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ({"to": "10.244.1.0", "via": "10.77.0.11"}, "settings.routes: '10.244.1.0' is no IPv4 network."),
        ({"to": "10.244.1.0/33", "via": "10.77.0.11"}, "settings.routes: '10.244.1.0/33' is no IPv4 network."),
        ({"to": "0.0.0.0/0", "via": "10.77.0.11"}, "settings.routes: '0.0.0.0/0' is no IPv4 network."),
        ({"to": "10.244.1.0/24", "via": "node-2"}, "settings.routes: 'node-2' is no IPv4 address."),
    ],
)
def test_malformed_routes(node: Machine, route: dict[str, str], text: str) -> None:
    joined(node)
    assert refuse(node, "routes", {"routes": [route]}, text).changes == {}
