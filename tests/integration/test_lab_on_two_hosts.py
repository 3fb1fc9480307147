"""A lab on two hosts, made by the command that users run: placement, the tunnel, a host without power, destroy.

The hosts are namespaces (tests/hosts); their machines are real, Debian 13 without Kubernetes.
"""

from __future__ import annotations

import subprocess  # noqa: TID251 - captures what the LANs carry
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import results
from harness import Winlab
from hosts import MANAGEMENT, TUNNELS, Host, Hosts, add, install, one_site, within

SECOND = "hypervisor-2"
SIZES = (
    "controllers.hypervisor=hypervisor-1",  # both hosts see this machine's free memory, at different moments
    "controllers.memory=1024",
    "linux_workers.count=1",
    "linux_workers.memory=768",
)
SPEC = ("--spec", "1-0-2", *(word for size in SIZES for word in ("--set", size)))
CREATE = ("create", *SPEC, "--until", "guests")
LARGEST = 1442  # bytes of a packet that the tunnel takes: 1500 less 58


@dataclass
class Lab:
    """The hosts, and what the first ``create`` printed."""

    hosts: Hosts
    first: Host
    second: Host
    created: str


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    install()
    Winlab().ok("image", "build", "debian-13")  # hosts see this machine's cache, and have no internet
    with Hosts("h1", "h2") as made:
        first, second = made.all
        one_site(first, second)
        add(first, second)
        done = first.winlab(*CREATE)
        yield Lab(made, first, second, done.stdout + done.stderr)
    assert made.left() == []


def domains(host: Host) -> list[str]:
    return host.run("virsh", "-c", "qemu:///system", "list", "--all", "--name").stdout.split()


def volumes(host: Host) -> list[str]:
    return [name for name in host.run("ls", "/var/lib/winlab/pool").stdout.split() if name.startswith("lab.")]


def nodes(host: Host) -> dict[str, Any]:
    status = results.items(host.winlab("status", "--output", "json", check=False).stdout)
    return {node["name"]: node for node in status}


def ping(lab: Lab, size: int) -> str:
    """What the controller prints of packets of *size* bytes, which may not be cut, to the other node."""
    words = f"ping -c 3 -W 5 -M do -s {size - 28} {nodes(lab.first)['linux-1']['address']} 2>&1 || true"
    return lab.first.winlab("exec", "controller-1", "--", "sh", "-c", words).stdout


def test_each_host_has_a_node_and_the_plan_says_why(lab: Lab) -> None:
    assert (domains(lab.first), domains(lab.second)) == (["winlab-lab.controller-1"], ["winlab-lab.linux-1"])
    plan = results.item(lab.first.winlab("plan", *SPEC, "--output", "json").stdout)
    assert {node["name"]: node["hypervisor"] for node in plan["nodes"]} == {
        "controller-1": "hypervisor-1", "linux-1": SECOND,
    }  # fmt: skip
    assert plan["network"]["mtu"] == LARGEST


def test_guests_on_both_talk_through_the_tunnel_alone(lab: Lab, tmp_path: Path) -> None:
    files = {card: tmp_path / f"{card}.pcap" for card in (MANAGEMENT, TUNNELS)}
    captures = []
    for card, path in files.items():
        words = ["tcpdump", "-Z", "root", "-U", "-i", lab.hosts.switch.tap(card), "-w", str(path)]
        captures.append(subprocess.Popen([*lab.hosts.switch.words(), *words], stderr=subprocess.PIPE, text=True))
        assert captures[-1].stderr is not None
        assert "listening" in captures[-1].stderr.readline()
    try:
        fits, too_large = ping(lab, LARGEST), ping(lab, LARGEST + 1)
    finally:
        for capture in captures:
            capture.terminate()
            capture.communicate()

    assert " 0% packet loss" in fits
    assert "Message too long" in too_large or "message too long" in too_large, too_large

    def count(card: str, what: str) -> int:
        words = ["tcpdump", "-n", "-r", str(files[card]), what]
        return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())

    assert count(TUNNELS, "udp port 6081") > 0
    assert count(TUNNELS, "ip and not udp port 6081") == 0
    assert count(MANAGEMENT, "udp port 6081 or net 10.77.0.0/24 or net 172.31.240.0/20") == 0


def test_commands_reach_the_node_of_the_other_host(lab: Lab) -> None:
    assert lab.first.winlab("exec", "linux-1", "--", "hostname").stdout == "linux-1\n"
    assert "linux-1" in lab.first.winlab("logs", "linux-1").stdout


def test_a_second_create_changes_nothing(lab: Lab) -> None:
    def all_answer() -> bool:
        return all(node["answers"] for node in nodes(lab.first).values())

    within(all_answer)  # a login may time out on a busy machine
    before = nodes(lab.first)
    lab.first.winlab(*CREATE)
    within(lambda: nodes(lab.first) == before)


def test_a_node_of_the_other_host_stops_and_starts(lab: Lab) -> None:
    lab.first.winlab("stop", "linux-1")
    assert nodes(lab.first)["linux-1"]["state"] != nodes(lab.first)["controller-1"]["state"]
    lab.first.winlab("start", "linux-1")
    assert lab.first.winlab("exec", "linux-1", "--", "hostname").stdout == "linux-1\n"


def test_a_host_without_power_is_reported_and_destroy_removes_the_rest_later(lab: Lab) -> None:
    lab.second.off()
    done = lab.first.winlab("status", check=False)
    assert f"The hypervisor '{SECOND}' does not answer" in done.stderr
    assert "controller-1" in done.stdout
    done = lab.first.winlab("destroy", check=False)
    assert done.returncode != 0
    assert SECOND in done.stderr
    lab.second.on()
    lab.second.winlab("host", "setup")
    lab.first.winlab("destroy")
    for host in (lab.first, lab.second):
        assert (domains(host), volumes(host)) == ([], [])
    assert "10.77" not in lab.first.run("ovn-nbctl", "show").stdout
    lab.first.winlab("hypervisor", "remove", SECOND)
