"""A node moves between two hosts by the command that users run: while it runs, while it is off, interrupted, drained.

The hosts are namespaces (tests/hosts); the node is a real Debian 13 without Kubernetes. All tests use the same node.
"""

from __future__ import annotations

import itertools
import re
import subprocess  # noqa: TID251 - captures what the LANs carry, pings, and kills a move
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import results
from harness import Winlab
from hosts import MANAGEMENT, TUNNELS, Host, Hosts, add, install, one_site
from hosts.host import WINLAB

pytestmark = pytest.mark.slow  # minutes of emulated guests that move

FIRST, SECOND = "hypervisor-1", "hypervisor-2"
NODE = "controller-1"
SPEC = ("--spec", "1-0-1", "--set", "controllers.memory=1024", "--set", "network.mtu=1442")
CREATE = ("create", *SPEC, "--until", "guests")
ON_DISK, IN_MEMORY = "MARKER-ON-THE-DISK-OF-THE-GUEST", "MARKER-IN-THE-MEMORY-OF-THE-GUEST"
PKI = "/etc/pki/qemu"


class Lab:
    """The two hosts, and where the node is."""

    def __init__(self, made: Hosts) -> None:
        self.made = made
        self.hosts = dict(zip((FIRST, SECOND), made.all, strict=True))
        self.first = self.hosts[FIRST]

    def node(self) -> dict[str, Any]:
        return dict(results.item(self.first.winlab("status", "-o", "json", check=False).stdout))

    def where(self) -> str:
        """The hypervisor that the node is on: one alone."""
        found = [name for name, host in self.hosts.items() if domains(host)]
        assert len(found) == 1, {name: domains(host) for name, host in self.hosts.items()}
        return found[0]

    def other(self) -> str:
        return SECOND if self.where() == FIRST else FIRST

    def sh(self, script: str) -> str:
        return self.first.winlab("exec", NODE, "--", "sudo", "sh", "-c", script).stdout

    def move(self, to: str, *words: str) -> dict[str, Any]:
        done = self.first.winlab("move", NODE, to, *words, "-o", "json")
        return dict(results.item(done.stdout))

    def check_moved(self, to: str) -> None:
        """The node is there alone, with what it had, and nothing is left where it was."""
        assert self.where() == to
        node = self.node()
        assert (node["hypervisor"], node["state"], node["answers"]) == (to, "running", True)
        assert self.sh("md5sum < /root/marker") == self.sum
        assert volumes(self.hosts[self.other()]) == []
        assert "activation-strategy" not in self.first.run("ovn-nbctl", "list", "Logical_Switch_Port").stdout

    def fill(self) -> None:
        """Write markers, which no one compresses or encrypts, to the node's disk and memory."""
        self.sh(f"yes {ON_DISK} | head -c 20M > /root/marker; yes {IN_MEMORY} | head -c 8M > /dev/shm/marker; sync")
        self.sum = self.sh("md5sum < /root/marker")


def domains(host: Host) -> list[str]:
    return host.run("virsh", "-c", "qemu:///system", "list", "--all", "--name").stdout.split()


def volumes(host: Host) -> list[str]:
    return [name for name in host.run("ls", "/var/lib/winlab/pool").stdout.split() if name.startswith("lab.")]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    install()
    Winlab().ok("image", "build", "debian-13")  # hosts see this machine's cache, and have no internet
    with Hosts("h1", "h2") as made:
        first, second = made.all
        for host in made.all:  # by the machine's SMBIOS, which all have, libvirt takes them for one host
            host.run("sh", "-c", "echo 'host_uuid_source = \"machine-id\"' >>/etc/libvirt/libvirtd.conf")
        one_site(first, second)
        add(first, second)
        first.winlab(*CREATE)
        made_lab = Lab(made)
        made_lab.fill()
        yield made_lab
        first.winlab("destroy")
        for host in (second, first):
            host.winlab("host", "teardown")
            assert host.run("ls", PKI, check=False).returncode != 0
    assert made.left() == []


@contextmanager
def captured(lab: Lab, folder: Path) -> Iterator[None]:
    """Capture both LANs; afterwards neither marker may be in what they carried."""
    captures = []
    for card in (MANAGEMENT, TUNNELS):
        words = ["tcpdump", "-Z", "root", "-U", "-s", "0", "-i", lab.made.switch.tap(card), "-w", str(folder / card)]
        captures.append(subprocess.Popen([*lab.made.switch.words(), *words], stderr=subprocess.PIPE, text=True))
        assert captures[-1].stderr is not None
        assert "listening" in captures[-1].stderr.readline()
    try:
        yield
    finally:
        for capture in captures:
            capture.terminate()
            capture.communicate()
    content = b"".join((folder / card).read_bytes() for card in (MANAGEMENT, TUNNELS))
    assert len(content) > 20 << 20  # the disk and the memory
    for marker in (ON_DISK, IN_MEMORY):
        assert marker.encode() not in content


@contextmanager
def pinged(lab: Lab) -> Iterator[None]:
    """Ping the node from its first host, and print its longest silence."""
    words = lab.first.words("ping", "-n", "-D", "-i", "0.1", lab.node()["external"])
    ping = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        lab.first.run("pkill", "ping")  # it is not a child of this process: nsenter is
        said = ping.communicate()[0]
    times = [float(text) for text in re.findall(r"^\[([0-9.]+)\] .* bytes from", said, re.M)]
    assert times
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    print(f"the longest silence was {max(gaps):.1f} s, {said.count('DUP!')} answers came twice")


def test_only_qemu_can_read_the_certificates(lab: Lab) -> None:
    for host in lab.hosts.values():
        said = host.run(
            "stat", "--format=%U:%G %a %n", *(f"{PKI}/{name}" for name in host.run("ls", PKI).stdout.split())
        )
        assert len(said.stdout.splitlines()) == 5
        assert {line.rpartition(" ")[0] for line in said.stdout.splitlines()} == {"root:libvirt-qemu 640"}


def test_a_running_node_moves_over_tls(lab: Lab, tmp_path: Path) -> None:
    boots = lab.sh("cat /proc/sys/kernel/random/boot_id")
    with captured(lab, tmp_path), pinged(lab):
        done = lab.move(SECOND)
    assert (done["how"], done["source"], done["target"], done["state"]) == ("live", FIRST, SECOND, "running")
    lab.check_moved(SECOND)
    assert lab.sh("cat /proc/sys/kernel/random/boot_id") == boots
    assert lab.move(SECOND)["how"] == "nothing"


def test_nothing_is_left_to_do_for_create(lab: Lab) -> None:
    before = lab.node()
    lab.first.winlab(*CREATE)
    assert lab.node() == before
    plan = results.item(lab.first.winlab("plan", *SPEC, "-o", "json").stdout)
    assert plan["nodes"][0]["hypervisor"] == before["hypervisor"]
    assert lab.first.winlab("repair", "--check", check=False).stdout.count(NODE) == 0


def test_a_killed_move_is_finished_by_the_same_command(lab: Lab) -> None:
    to = lab.other()
    # progress for people waits until a step has taken a minute; events come at once
    words = lab.first.words(*WINLAB, "move", NODE, to, "--events", "/dev/stderr")
    move = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert move.stdout is not None
    for line in move.stdout:
        if "its disks and its memory" in line:
            break
    lab.first.run("pkill", "-KILL", "-f", "winlab move")  # in that host: it has processes of its own
    move.wait()
    refused = lab.first.winlab("stop", check=False)
    assert refused.returncode != 0
    assert f"'winlab move {NODE} {to} --lab lab'" in refused.stderr
    lab.move(to)
    lab.check_moved(to)


def test_a_node_moves_while_it_is_off(lab: Lab, tmp_path: Path) -> None:
    to = lab.other()
    with captured(lab, tmp_path):
        assert lab.move(to, "--cold")["how"] == "cold"
    lab.check_moved(to)


def test_a_drained_hypervisor_is_empty_and_gets_nothing(lab: Lab) -> None:
    here, to = lab.where(), lab.other()
    lab.first.winlab("hypervisor", "drain", here)
    lab.check_moved(to)
    assert "drained" in lab.first.winlab("hypervisor", "list").stdout
    plan = results.item(lab.first.winlab("plan", *SPEC, "--lab", "new", "-o", "json").stdout)
    assert plan["nodes"][0]["hypervisor"] == to
    lab.first.winlab("hypervisor", "drain", here, "--undo")
    assert "drained" not in lab.first.winlab("hypervisor", "list").stdout
