"""The first shared lab is changed while it exists, compared with its record, and given faults inside its nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest
import results
from harness import LAB_A, LAB_B, Labs, Winlab, ask, is_ready, nodes, text

LAB = ("--lab", LAB_A)
SLACK = 128 << 20  # bytes that logs and a database write and remove meanwhile


def difference(labs: Labs, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of diff, and its output."""
    done = labs.a("diff", *words, "--output", "json")
    assert done.returncode in (0, 22), done.stderr
    return done.returncode, results.item(done.stdout)


@pytest.mark.slow  # two minutes; test_machine_changes.py changes a machine's sizes
def test_sizes_change_at_the_next_start(labs: Labs) -> None:
    """diff says so before and after; without a restart nothing happens to the node meanwhile."""
    assert difference(labs)[0] == 0
    more = ("--set", "workers.cpus=3")
    code, told = difference(labs, *more)
    (change,) = told["changes"]
    assert (code, change["what"], change["before"], change["after"]) == (22, "node node-1: cpus", "2", "3")
    assert change["when"] == "next start"
    text(labs.a("apply", *more))
    code, told = difference(labs)
    assert (code, told["changes"]) == (0, [])
    assert [row["node"] for row in told["pending"]] == ["node-1"]
    assert is_ready(nodes(labs)["node-1"])
    text(labs.a("apply", "--set", "workers.cpus=2"))
    code, told = difference(labs)
    assert (code, told["changes"], told["pending"]) == (0, [], [])


def test_impossible_changes_are_refused_before_anything_is_touched(labs: Labs) -> None:
    refused = labs.a("apply", "--set", "network.cidr=10.99.0.0/24", "--set", "workers.cpus=3")
    assert refused.returncode == 6, refused.stderr
    assert "network.cidr" in refused.stderr
    assert difference(labs)[0] == 0


@pytest.mark.slow  # two minutes; test_faults.py has it between bare guests
def test_packets_between_two_nodes_are_lost_and_delayed(labs: Labs, winlab: Winlab) -> None:
    """The real script with the guest's own tc and nft; the host's way to the nodes stays as it is."""
    gateway = "10.77.0.1"
    ping = "ping -n -c 3 -i 0.3 -W 5 {} | tail -n 2"
    node = next(row["address"] for row in _rows(labs) if row["name"] == "node-1")
    text(winlab("fault", "add", "loss", "node-1", "controller-1", "--percent", "100", *LAB))
    said = ask(labs.a, "controller-1", worker=ping.format(node), gateway=ping.format(gateway))
    assert "100% packet loss" in said["worker"]
    assert " 0% packet loss" in said["gateway"]
    text(winlab("fault", "clear", "loss.controller-1.node-1", *LAB))
    text(winlab("fault", "add", "delay", "node-1", "controller-1", "--ms", "700", *LAB))
    late = _in_controller(labs, ping.format(node))
    assert float(late.rsplit("=", 1)[1].split("/")[0]) >= 700, late
    listed = winlab.items("fault", "list", *LAB)
    assert [one["name"] for one in listed] == ["delay.controller-1.node-1"]
    text(winlab("fault", "clear", *LAB))
    assert winlab.items("fault", "list", *LAB) == []
    rules = "sudo nft list tables && sudo tc qdisc show && echo listed"
    said = ask(labs.a, "controller-1", worker=ping.format(node), rules=rules)
    assert " 0% packet loss" in said["worker"]
    assert said["rules"].endswith("listed")
    assert "winlab" not in said["rules"]


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ("node-1", "powershell.exe -Command [DateTimeOffset]::UtcNow.ToUnixTimeMilliseconds()"),
        pytest.param("controller-1", "date +%s%3N", marks=pytest.mark.slow),
    ],
)
def test_a_clock_is_wrong_on_purpose_and_right_again(labs: Labs, winlab: Winlab, node: str, line: str) -> None:
    text(winlab("fault", "add", "clock", node, "--skew", "-2h", *LAB))
    assert -3.0 < int(text(labs.a("exec", node, "--", line))) / 3.6e6 - time.time() / 3600 < -1.5
    text(winlab("fault", "clear", node, *LAB))
    assert -0.5 < int(text(labs.a("exec", node, "--", line))) / 3.6e6 - time.time() / 3600 < 0.5
    # no certificate was valid yet in that time, so nodes stopped reporting: they recover by themselves
    text(labs.a("kubectl", "--", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=900s"))


def test_a_disk_is_filled_on_purpose_and_empty_again(labs: Labs, winlab: Winlab) -> None:
    """The real script with the guest's own file system. Enough stays free for the kubelet to evict no pods."""
    before, size = _room(labs)
    wanted = before - (1 << 30)
    assert wanted > 0.2 * size, (before, size)  # the kubelet acts below 10 and 15 %
    text(winlab("fault", "add", "disk", "controller-1", "--free", str(wanted), *LAB))
    try:
        assert abs(_room(labs)[0] - wanted) < SLACK
        listed = winlab.items("fault", "list", *LAB)
        assert [(one["name"], one["settings"]) for one in listed] == [("disk.controller-1", {"free": wanted})]
        less = wanted + (512 << 20)
        text(winlab("fault", "add", "disk", "controller-1", "--free", str(less), *LAB))
        assert abs(_room(labs)[0] - less) < SLACK  # the file shrinks, too
    finally:
        text(winlab("fault", "clear", "controller-1", *LAB))
    assert abs(_room(labs)[0] - before) < SLACK
    assert is_ready(nodes(labs)["controller-1"])


def test_a_frozen_node_is_unresponsive_and_resumes(labs: Labs, winlab: Winlab) -> None:
    """For seconds: a node that does not report for long would become not Ready, and its pods would move."""
    text(winlab("fault", "add", "freeze", "node-1", *LAB))
    try:
        listed = winlab.items("fault", "list", *LAB)
        assert [one["name"] for one in listed] == ["freeze.node-1"]
        refused = labs.a("exec", "node-1", "--", "hostname")
        assert (refused.returncode, "'node-1' is suspended" in refused.stderr) == (9, True), refused.stderr
        text(winlab("fault", "add", "freeze", "node-1", *LAB))  # again, which does no harm
    finally:
        text(winlab("fault", "clear", "node-1", *LAB))
    assert {row["name"]: row["state"] for row in _rows(labs)} == {"controller-1": "running", "node-1": "running"}
    assert winlab.items("fault", "list", *LAB) == []
    assert text(labs.a("exec", "node-1", "--", "hostname")).strip() == "NODE-1"
    text(labs.a("kubectl", "--", "wait", "--for=condition=Ready", "node/node-1", "--timeout=600s"))


@pytest.mark.slow  # two minutes; test_crash.py cuts a machine's power, and test_lab.py boots a lab again
def test_a_machine_is_killed_on_purpose_and_boots_again(labs: Labs, member: Winlab) -> None:
    """The second lab's only machine, by the account that made it: a power cut, reported as such; cleared, it boots."""
    lab = ("--lab", LAB_B)
    boots = _starts(labs)
    text(member("fault", "add", "kill", "controller-1", *lab))
    off = labs.b("status", "--output", "json")
    assert [row["state"] for row in results.items(off.stdout)] == ["off"]
    listed = member.items("fault", "list", *lab)
    assert [one["name"] for one in listed] == ["kill.controller-1"]
    text(member("fault", "add", "kill", "controller-1", *lab))  # again, which does no harm
    text(member("fault", "clear", *lab))
    text(labs.b("start"))  # until it answers
    assert _starts(labs) > boots
    assert member.items("fault", "list", *lab) == []


def _starts(labs: Labs) -> int:
    """How often the firmware has started the second lab's machine."""
    return text(labs.b("serial", "controller-1", "--log")).count("BdsDxe: starting ")


def _room(labs: Labs) -> tuple[int, int]:
    """What is free on the first controller's disk, with what is root's alone, and the disk's size; in bytes."""
    free, block, blocks = map(int, _in_controller(labs, "sync; stat -f -c '%f %S %b' /").split())
    return free * block, blocks * block


def _rows(labs: Labs) -> list[dict[str, Any]]:
    return results.items(text(labs.a("status", "--output", "json")))


def _in_controller(labs: Labs, command: str) -> str:
    return text(labs.a("exec", "controller-1", "--", command))
