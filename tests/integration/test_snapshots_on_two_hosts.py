"""A lab on two hosts, saved at one instant, put back and copied: on its own hosts, and on one of them.

The hosts are namespaces (tests/hosts); their machines are real, Debian 13 without Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import results
from harness import Winlab
from hosts import Host, Hosts, add, install, one_site

pytestmark = pytest.mark.slow  # minutes of emulated guests

FIRST, SECOND = "hypervisor-1", "hypervisor-2"
POOL = ("workers.os=debian-13", "workers.cluster=false", "workers.memory=768")
CREATE = ("create", "--spec", "0-2-2", *(word for field in POOL for word in ("--set", field)))
MEMORY = 768 << 20
SAVED = "/var/tmp/saved"
NODES = ("node-1", "node-2")


@dataclass
class Lab:
    """The hosts of the lab, the first one first, and which of its nodes each has."""

    each: tuple[Host, Host]
    on: dict[str, str]

    @property
    def winlab(self) -> Any:
        return self.each[0].winlab

    def result(self, *words: str) -> Any:
        """The result of a command that changes something."""
        return results.item(self.winlab(*words, "--output", "json").stdout)

    def is_saved(self, lab: str = "lab") -> list[bool]:
        """Whether the nodes of a lab have the file that they had when the lab was saved."""
        test = ("--lab", lab, "--", "test", "-e", SAVED)
        return [self.winlab("exec", node, *test, check=False).returncode == 0 for node in NODES]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    install()
    Winlab().ok("image", "build", "debian-13")  # hosts see this machine's cache, and have no internet
    with Hosts("h1", "h2") as made:
        first, second = made.all
        one_site(first, second)
        add(first, second)
        first.winlab(*CREATE)
        on = {node: name for name, host in ((FIRST, first), (SECOND, second)) for node in nodes(host)}
        assert sorted(on.values()) == [FIRST, SECOND]
        yield Lab((first, second), on)
    assert made.left() == []


@pytest.fixture(scope="module")
def ready(lab: Lab) -> dict[str, Any]:
    """The snapshot."""
    for node in NODES:
        lab.winlab("exec", node, "--", "sudo", "touch", SAVED)
    made: dict[str, Any] = lab.result("snapshot", "save", "ready")
    for node in NODES:
        lab.winlab("exec", node, "--", "sudo", "rm", SAVED)
    return made


def nodes(host: Host, lab: str = "lab") -> list[str]:
    names = host.run("virsh", "-c", "qemu:///system", "list", "--name").stdout.split()
    return [name.removeprefix(f"winlab-{lab}.") for name in names if name.startswith(f"winlab-{lab}.")]


def volumes(host: Host, prefix: str) -> list[str]:
    return [name for name in host.run("ls", "/var/lib/winlab/pool").stdout.split() if name.startswith(prefix)]


def memory(host: Host, lab: str) -> dict[str, int]:
    """What the kernel counts of the file with the memory of a lab's only machine on a host, in KiB."""
    (pid,) = host.run("pgrep", "-f", f"guest=winlab-{lab}[.]").stdout.split()
    numbers: dict[str, int] = {}
    mapped = False
    for line in host.run("cat", f"/proc/{pid}/smaps").stdout.splitlines():
        if re.match("[0-9a-f]+-", line):
            mapped = line.endswith((".memory", "pc.ram"))
        elif mapped and line.endswith(" kB"):
            name, number, _ = line.split()
            numbers[name] = numbers.get(name, 0) + int(number)
    return numbers


def test_each_host_keeps_the_memory_of_its_own_machine(lab: Lab, ready: dict[str, Any]) -> None:
    assert ready["paused"] > 0
    parts = {part["name"]: part for part in ready["hypervisors"]}
    for node, name in lab.on.items():
        assert volumes(lab.each[name == SECOND], f"lab@ready.{node}.memory")
        assert volumes(lab.each[name == FIRST], f"lab@ready.{node}.") == []
        assert 0 < parts[name]["memory_bytes"] < parts[name]["disk_bytes"]
    assert sum(part["disk_bytes"] for part in parts.values()) == ready["disk_bytes"]
    assert lab.is_saved() == [False, False], "the lab continued"


def test_both_machines_are_put_back(lab: Lab, ready: dict[str, Any]) -> None:
    done = lab.result("reset", "ready")
    assert done["shared"]
    assert lab.is_saved() == [True, True]
    assert {node: name for name, host in zip((FIRST, SECOND), lab.each, strict=True) for node in nodes(host)} == lab.on


def test_a_copy_shares_the_memory_on_each_host(lab: Lab, ready: dict[str, Any]) -> None:
    done = lab.result("clone", "lab@ready", "try")
    try:
        assert done["shared"]
        assert lab.is_saved("try") == [True, True]
        for host in lab.each:
            seen = memory(host, "try")
            # the lab itself, which was put back, uses the same file
            assert 0 < seen["Pss:"] < seen["Rss:"], seen
            assert seen["Private_Dirty:"] < MEMORY >> 11, seen
        words = f"ping -c 3 -W 5 {results.items(lab.winlab('status', '--output', 'json').stdout)[1]['address']}"
        assert " 0% packet loss" in lab.winlab("exec", "node-1", "--lab", "try", "--", "sh", "-c", words).stdout
    finally:
        lab.winlab("destroy", "--lab", "try")
    assert [volumes(host, "try.") for host in lab.each] == [[], []]


def test_a_copy_is_made_on_the_other_host(lab: Lab, ready: dict[str, Any]) -> None:
    done = lab.winlab("clone", "lab@ready", "far", "--on", SECOND)
    (moved,) = [node for node, name in lab.on.items() if name == FIRST]
    try:
        why = f"the snapshot is on '{FIRST}', and the copy on '{SECOND}'"
        assert f"The whole memory of {moved} is restored" in done.stdout + done.stderr
        assert why in done.stdout + done.stderr
        assert (nodes(lab.each[0], "far"), sorted(nodes(lab.each[1], "far"))) == ([], [*NODES])
        assert lab.is_saved("far") == [True, True]
        assert volumes(lab.each[0], "far.") == [], "what was needed to bring the disk is gone"
    finally:
        lab.winlab("destroy", "--lab", "far")
    assert volumes(lab.each[1], "far.") == []


def test_a_hypervisor_that_the_site_does_not_have_is_refused(lab: Lab, ready: dict[str, Any]) -> None:
    done = lab.winlab("clone", "lab@ready", "none", "--on", "hypervisor-9", check=False)
    assert "The site has no hypervisor 'hypervisor-9'" in done.stderr


def test_a_host_without_power_is_named_and_a_second_delete_removes_the_rest(lab: Lab, ready: dict[str, Any]) -> None:
    first, second = lab.each
    second.off()
    for words in (("snapshot", "save", "late"), ("reset", "ready"), ("clone", "lab@ready", "try")):
        done = lab.winlab(*words, check=False)
        assert (done.returncode, f"'{SECOND}' does not answer" in done.stderr) == (4, True), done.stderr
    assert "late" not in lab.winlab("snapshot", "list").stdout
    assert f"lab@ready: what it takes on {SECOND} is unknown" in lab.winlab("snapshot", "list").stdout
    done = lab.winlab("snapshot", "delete", "ready", check=False)
    assert (done.returncode, f"'{SECOND}' does not answer" in done.stderr) == (4, True), done.stderr
    assert volumes(first, "lab@") == []
    second.on()
    second.winlab("host", "setup")
    assert volumes(second, "lab@") != []
    lab.winlab("snapshot", "delete", "ready")
    assert volumes(second, "lab@") == []
    lab.winlab("destroy")
    assert [volumes(host, "lab") for host in lab.each] == [[], []]
