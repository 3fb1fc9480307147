"""A second host that is cut off, stuck, rebooted or lost for good, with machines of labs on it: what winlab's verbs do.

The hosts are namespaces (tests/hosts). The labs are planted: their rows in OVN, their volumes and their machines are
real, and nothing is installed on the machines. The test prints how long each command took; see
docs/hypervisors-reference.md.
"""

from __future__ import annotations

import subprocess  # noqa: TID251 - interrupts a command
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import results
from hosts import Host, Hosts, add, install, one_site, within
from hosts.host import WINLAB

SECOND = "hypervisor-2"
URI = "qemu+ssh://root@h2/system"
PLANT = Path(__file__).with_name("planted_lab.py")
LIMIT = 900  # seconds: only a hang exceeds it


@dataclass
class Site:
    """The hosts, and the seconds that commands took, by what was wrong and the command."""

    hosts: Hosts
    first: Host
    second: Host
    took: list[tuple[str, str, int, float]] = field(default_factory=list)
    planted: int = 0

    def plant(self, lab: str, *more: str) -> None:
        """Make a lab with its controller on the first host and a worker on the second one."""
        self.planted += 1
        self.first.run(WINLAB[0], str(PLANT), lab, str(10 + self.planted), *more)

    def timed(self, fault: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run winlab on the first host, and note how long it took."""
        begun = time.monotonic()
        done = self.first.winlab(*words, check=False)
        self.took.append((fault, " ".join(words), done.returncode, time.monotonic() - begun))
        return done

    def states(self, fault: str, lab: str) -> dict[str, tuple[str, str]]:
        """The state and the problem of each node, as status reports them."""
        shown = results.items(self.timed(fault, "status", "--lab", lab, "-o", "json").stdout)
        return {node["name"]: (node["state"], node["problem"]) for node in shown}

    def await_state(self, fault: str, lab: str, state: str, problem: str) -> None:
        """Wait until status reports this of the worker; what asks a host has little time on a busy machine."""

        def is_reported() -> bool:
            found = self.states(fault, lab)["linux-1"]
            return found[0] == state and problem in found[1]

        within(is_reported)

    def domains(self, host: Host) -> list[str]:
        return host.run("virsh", "-c", "qemu:///system", "list", "--all", "--name").stdout.split()

    def volumes(self, host: Host, lab: str) -> list[str]:
        return [name for name in host.run("ls", "/var/lib/winlab/pool").stdout.split() if name.startswith(f"{lab}.")]

    def left(self) -> list[dict[str, Any]]:
        labs = results.items(self.first.winlab("list", "-o", "json", check=False).stdout)
        return [{"lab": lab["name"], **one} for lab in labs for one in lab["left"]]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    install()
    with Hosts("h1", "h2") as made:
        first, second = made.all
        one_site(first, second)
        add(first, second)
        there = Site(made, first, second)
        yield there
        for fault, words, code, seconds in there.took:
            print(f"| {fault} | `{words}` | {code} | {seconds:.1f} |")
    assert made.left() == []


def test_a_stuck_host_s_nodes_are_unknown_and_the_rest_is_shown(site: Site) -> None:
    site.plant("stuck")
    assert {state for state, _ in site.states("nothing", "stuck").values()} == {"running"}
    with site.second.stuck():
        states = site.states("stuck", "stuck")
        assert states["linux-1"][0] == "unknown"
        assert "it hangs, or the host is overloaded" in states["linux-1"][1]
        assert states["controller-1"][0] == "running"
        assert site.timed("stuck", "list").returncode == 20
        assert site.timed("stuck", "repair", "--lab", "stuck").returncode == 4
        within(lambda: site.first.run("ssh", "h2", "true", check=False).returncode == 0)  # on a busy machine it is slow
        refused = site.timed("stuck", "hypervisor", "forget", SECOND)
        assert refused.returncode == 6
        assert "answers by ssh" in refused.stderr


def test_destroy_remembers_what_a_stuck_host_has_until_it_answers(site: Site) -> None:
    site.plant("gone")
    with site.second.stuck():
        done = site.timed("stuck", "destroy", "--lab", "gone")
        assert done.returncode == 20, done.stderr
        assert "linux-1 of the lab 'gone'" in done.stdout
        assert site.left() == [{"lab": "gone", "hypervisor": SECOND, "nodes": ["linux-1"]}]
    assert "winlab-gone.linux-1" in site.domains(site.second)
    assert "winlab-gone.controller-1" not in site.domains(site.first)
    # it answers again, and counts as the lab's no longer
    assert site.timed("answers again", "destroy", "--lab", "stuck").returncode == 0
    assert not {"winlab-gone.linux-1", "winlab-stuck.linux-1"} & {*site.domains(site.second)}
    assert site.volumes(site.second, "gone") == site.volumes(site.second, "stuck") == []
    assert site.left() == []


def test_a_host_that_is_cut_off_keeps_what_destroy_left(site: Site) -> None:
    site.plant("cut")
    with site.second.cut_off():
        site.await_state("cut off", "cut", "unknown", "The host is off or cut off")
        assert site.timed("cut off", "repair", "--lab", "cut").returncode == 4
        assert site.timed("cut off", "destroy", "--lab", "cut").returncode == 20
    assert site.volumes(site.second, "cut") != []
    add(site.first, site.second)  # its facts are read again
    assert site.volumes(site.second, "cut") == []
    assert "winlab-cut.linux-1" not in site.domains(site.second)


def test_a_host_that_was_rebooted_answers_with_its_machines_off(site: Site) -> None:
    site.plant("boot")
    site.second.off()
    site.await_state("without power", "boot", "unknown", "The host is off or cut off")
    site.second.on()
    site.second.winlab("host", "setup")
    site.await_state("booted again", "boot", "off", "as after a reboot of its host")
    assert site.volumes(site.second, "boot") != []
    assert site.timed("booted again", "destroy", "--lab", "boot").returncode == 0


def interrupted(site: Site, *words: str) -> None:
    """Run winlab on the first host until the worker's machine runs there, then interrupt it: no guest has to answer."""
    command = subprocess.Popen(
        site.first.words(*WINLAB, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    end = time.monotonic() + LIMIT
    while "linux-1" not in site.first.run("virsh", "-c", "qemu:///system", "list", "--name").stdout:
        printed = command.stdout.read() if command.poll() is not None and command.stdout else ""
        assert command.poll() is None, printed
        assert time.monotonic() < end
        time.sleep(1)
    site.first.run("pkill", "-TERM", "-f", f"winlab {words[0]}")  # nsenter passes no signal on
    command.communicate()


def test_a_node_of_a_host_that_is_cut_off_is_rebuilt_on_another_one(site: Site) -> None:
    site.plant("again", "credentials")
    with site.second.cut_off():
        assert site.timed("cut off", "node", "rebuild", "linux-1", "--lab", "again").returncode == 4
        interrupted(
            site, "node", "rebuild", "linux-1", "--on", "hypervisor-1", "--lab", "again", "--until", "guests", "--force"
        )
        assert "winlab-again.linux-1" in site.domains(site.first)
        assert site.left() == [{"lab": "again", "hypervisor": SECOND, "nodes": ["linux-1"]}]
    # the old machine runs, and has no port: never a node twice
    assert "winlab-again.linux-1" in site.domains(site.second)
    shown = results.items(site.first.winlab("list", "-o", "json").stdout)
    (lab,) = [one for one in shown if one["name"] == "again"]
    assert [node["name"] for node in lab["nodes"]].count("linux-1") == 1
    own = site.first.run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:system-id").stdout.strip().strip('"')
    bound = site.first.run("ovn-sbctl", "--bare", "--columns=options", "list", "Port_Binding").stdout
    assert f"requested-chassis={own}" in bound
    assert site.timed("answers again", "destroy", "--lab", "again").returncode == 0
    assert "winlab-again.linux-1" not in site.domains(site.second) + site.domains(site.first)


def test_a_forgotten_host_s_nodes_are_made_again_elsewhere_and_it_is_recognized(site: Site) -> None:
    site.plant("lost", "credentials")
    site.plant("lost2")
    theirs = (
        site.second.run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:system-id").stdout.strip().strip('"')
    )
    assert site.first.winlab("hypervisor", "forget", SECOND, check=False).returncode == 6
    site.second.off()
    assert site.timed("lost for good", "hypervisor", "forget", SECOND).returncode == 0
    assert theirs not in site.first.run("ovn-sbctl", "show").stdout
    assert SECOND not in site.first.winlab("hypervisor", "list").stdout
    state, problem = site.states("forgotten", "lost")["linux-1"]
    assert state == "lost"
    assert "winlab repair --lab lost" in problem
    assert site.timed("forgotten", "repair", "--check", "--lab", "lost").returncode == 22
    assert site.timed("forgotten", "destroy", "--lab", "lost2").returncode == 0  # nothing waits for it
    assert site.left() == []
    interrupted(site, "repair", "--lab", "lost")
    assert "winlab-lost.linux-1" in site.domains(site.first)

    site.second.on()
    site.second.winlab("host", "setup")
    assert "winlab-lost.linux-1" in site.domains(site.second)
    done = site.timed("forgotten, and back", "hypervisor", "add", SECOND, URI)
    assert done.returncode == 0, done.stderr
    assert "was forgotten" in done.stdout + done.stderr
    assert site.domains(site.second) == []
    assert site.volumes(site.second, "lost") == []
    assert site.timed("forgotten, and back", "destroy", "--lab", "lost").returncode == 0
