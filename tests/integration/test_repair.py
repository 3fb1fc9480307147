"""Drift of the first shared lab, made manually in the real OVN, libvirt and guests: reported, and repaired."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - damages the lab by hand
from pathlib import Path
from typing import Any

import pytest
import results
from harness import LAB_A, Labs, answering, text

NB = "--db=unix:/run/winlab/ovnnb.sock"


def damage(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout


def drifts(labs: Labs, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the drifts by node and what they are about."""
    done = labs.a("repair", *words, "--output", "json")
    assert done.returncode in (0, 22), done.stderr
    return done.returncode, {f"{one['node']} {one['what']}".strip(): one for one in results.items(done.stdout)}


def assert_as_planned(labs: Labs) -> None:
    for _ in range(3):  # a login that times out on a busy machine is reported as a drift
        if (found := drifts(labs, "--check")) == (0, {}):
            return
    raise AssertionError(found)


@pytest.mark.slow  # containerd is restarted twice: minutes in an emulated node
def test_a_changed_file_of_a_linux_node_is_reported_and_restored(labs: Labs) -> None:
    config, mark = "/etc/containerd/config.toml", "# changed by hand"
    text(labs.a("exec", "controller-1", "--", f"echo '{mark}' | sudo tee -a {config}"))
    code, seen = drifts(labs, "--check")
    assert (code, seen.keys()) == (22, {f"controller-1 {config}"})
    assert seen[f"controller-1 {config}"]["actual"] == "differs"
    assert mark in text(labs.a("exec", "controller-1", "--", f"sudo cat {config}")), "--check changes nothing"

    code, seen = drifts(labs)
    assert (code, seen.keys()) == (0, {f"controller-1 {config}"})
    assert seen[f"controller-1 {config}"]["repaired"]
    assert mark not in text(labs.a("exec", "controller-1", "--", f"sudo cat {config}"))
    assert (
        text(labs.a("exec", "controller-1", "--", "systemctl is-active containerd kubelet")).split() == ["active"] * 2
    )
    assert_as_planned(labs)


def test_drift_is_reported_and_repaired(labs: Labs, state: Path) -> None:
    assert_as_planned(labs)
    folder = state / "labs" / LAB_A
    plan = json.loads((folder / "design.json").read_text())["plan"]
    node = next(one for one in plan["nodes"] if one["name"] == "node-1")
    router, net = plan["network"]["router"], plan["network"]
    bridge = f"{net['external_gateway']}/{net['external_cidr'].split('/')[1]}"
    text(labs.a("exec", "controller-1", "--", "sudo systemctl stop kubelet"))
    damage("ovn-nbctl", NB, "lr-nat-del", router, "dnat_and_snat", node["floating"])
    damage("virsh", "suspend", node["domain"])
    (folder / "known_hosts").unlink()
    damage("ip", "addr", "del", bridge, "dev", "br-winlab")
    code, seen = drifts(labs, "--check")
    nat = f"NAT dnat_and_snat {node['floating']} {node['address']}"
    assert (code, seen.keys()) == (22, {"known_hosts", nat, "bridge br-winlab", "node-1 state"})
    assert all(one["repairable"] and not one["repaired"] for one in seen.values())
    assert not (folder / "known_hosts").exists()

    code, seen = drifts(labs)
    assert code == 0, seen
    # the kubelet was seen once the guests could be reached again
    assert seen.keys() >= {"known_hosts", nat, "bridge br-winlab", "node-1 state", "controller-1 kubelet"}
    assert all(one["repaired"] for one in seen.values())
    assert [(one["state"], one["answers"]) for one in answering(labs.a)] == [("running", True), ("running", True)]
