"""Hosts of one site: they join, their network is one, and each may only do what is its own.

The hosts are namespaces (tests/hosts), each with libvirt, Open vSwitch and OVN that winlab started. The tests build on
each other: the last ones take the site apart.
"""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - captures what the LANs carry
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import results
from hosts import MANAGEMENT, TUNNELS, Host, Hosts, install, one_site, within

SB = "unix:/run/ovn/ovnsb_db.sock"
TLS = ("-p", "/etc/winlab/tls/key.pem", "-c", "/etc/winlab/tls/certificate.pem", "-C", "/etc/winlab/tls/ca.pem")
INSIDE = {"h1": "192.0.2.11", "h2": "192.0.2.12"}  # of a port on each host, on one logical switch
LARGEST = 1442  # bytes of a packet that the tunnel takes: 1500 less 58
DAEMONS = {"libvirtd", "virtlogd", "ovsdb-server", "ovs-vswitchd", "ovn-controller", "ovn-northd"}


@dataclass
class Joined:
    """A site of two hosts, and what the second one's first attempt to join printed."""

    hosts: Hosts
    first: Host
    second: Host
    refused: str


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    install()


@pytest.fixture(scope="module")
def site() -> Iterator[Joined]:
    with Hosts("h1", "h2") as made:
        first, second = made.all
        (refused,) = one_site(first, second, user="ann")
        yield Joined(made, first, second, refused.stderr)


def southbound(site: Joined, *words: str, who: tuple[str, ...] = TLS) -> subprocess.CompletedProcess[str]:
    """Ask OVN's southbound database from the second host, by default with its certificate."""
    place = f"--db=ssl:{site.first.address}:6642"
    return site.second.run("ovn-sbctl", "--timeout=60", "--no-leader-only", place, *who, *words, check=False)


def state(host: Host) -> dict[str, object]:
    """What a second setup must not change."""
    files = "find /etc/winlab /var/lib/winlab /etc/openvswitch/system-id.conf -type f -printf '%p %T@\n'"
    rows = [line.split() for line in host.run("ps", "-e", "-o", "pid=,comm=").stdout.splitlines()]
    return {
        "files": sorted(host.run("sh", "-c", files).stdout.splitlines()),
        "daemons": sorted(row[0] for row in rows if row[1] in DAEMONS),
        "switch": host.run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids").stdout,
        "bridges": host.run("ovs-vsctl", "list-br").stdout,
        "addresses": host.run("ip", "-brief", "address").stdout,
    }


@contextmanager
def captured(site: Joined, card: str, folder: Path) -> Iterator[Callable[[str], int]]:
    """Capture a LAN; yields how many frames match a filter of tcpdump's, to be asked afterwards."""
    path = folder / f"{card}.pcap"
    words = ["tcpdump", "-Z", "root", "-U", "-i", site.hosts.switch.tap(card), "-w", str(path)]
    with subprocess.Popen([*site.hosts.switch.words(), *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "listening" in process.stderr.readline()

        def count(what: str) -> int:
            read = ["tcpdump", "-n", "-r", str(path), what]
            return len(subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines())

        yield count
        process.terminate()
        process.communicate()


def ping(host: Host, to: str, size: int) -> bool:
    """Whether a packet of *size* bytes reaches another host's port, and its answer comes back; three attempts."""
    words = ("ping", "-c", "3", "-i", "0.3", "-W", "3", "-M", "do", "-s", str(size - 28), to)
    return host.run(*words, check=False).returncode == 0


def test_a_host_without_an_address_for_tunnels_is_refused_with_the_commands(site: Joined) -> None:
    assert "in user space" in site.refused
    assert "ovs-vsctl add-br br-phy" in site.refused
    assert "--tunnel-address" in site.refused


def test_both_hosts_are_chassis_of_one_ovn(site: Joined) -> None:
    names = site.first.run("ovn-sbctl", "--bare", "--columns=name", "list", "Chassis").stdout.split()
    assert sorted(names) == sorted([site.first.chassis(), site.second.chassis()])
    site.first.run("ovn-nbctl", "--timeout=60", "--wait=hv", "sync")


def test_ports_on_both_hosts_reach_each_other_through_the_tunnel_alone(site: Joined, tmp_path: Path) -> None:
    site.first.run("ovn-nbctl", "ls-add", "both")
    for number, host in enumerate((site.first, site.second), 1):
        mac, port, device = f"02:00:00:00:00:0{number}", f"port-{host.name}", "inside"
        site.first.run(
            *("ovn-nbctl", "lsp-add", "both", port, "--", "lsp-set-addresses", port, f"{mac} {INSIDE[host.name]}")
        )
        set_ = ("type=internal", f'mac="{mac}"', f"external_ids:iface-id={port}")
        host.run("ovs-vsctl", "add-port", "br-int", device, "--", "set", "Interface", device, *set_)
        host.run("ip", "address", "add", f"{INSIDE[host.name]}/24", "dev", device)
        host.run("ip", "link", "set", device, "up")
    site.first.run("ovn-nbctl", "--timeout=60", "--wait=hv", "sync")
    with captured(site, MANAGEMENT, tmp_path) as management, captured(site, TUNNELS, tmp_path) as tunnels:
        within(lambda: ping(site.first, INSIDE["h2"], 100))
        assert ping(site.second, INSIDE["h1"], LARGEST)
        assert not ping(site.second, INSIDE["h1"], LARGEST + 1)
    assert tunnels("udp port 6081") > 5
    assert tunnels("ip and not udp port 6081") == 0
    assert management("udp port 6081 or net 192.0.2.0/24") == 0


def test_the_largest_packet_is_recorded_on_both(site: Joined) -> None:
    for host in site.hosts.all:
        assert f"tunnel_mtu: {LARGEST}\n" in host.run("cat", "/etc/winlab/host.yaml").stdout


def test_strangers_do_not_reach_the_database(site: Joined) -> None:
    place = f"{site.first.address}:6642"
    plain = site.second.run("ovsdb-client", "--timeout=60", "list-dbs", f"tcp:{place}", check=False)
    assert plain.returncode != 0
    none = ("openssl", "s_client", "-connect", place, "-CAfile", "/etc/winlab/tls/ca.pem", "-ign_eof")
    assert "certificate required" in site.second.run("timeout", "60", *none, check=False).stderr
    make = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subject = f"/CN={site.first.chassis()}"
    site.second.run(*make, "-keyout", "/tmp/own-key.pem", "-out", "/tmp/own.pem", "-subj", subject)
    own = ("-p", "/tmp/own-key.pem", "-c", "/tmp/own.pem", "-C", "/etc/winlab/tls/ca.pem")
    assert "connection failed" in southbound(site, "show", who=own).stderr
    assert southbound(site, "show").returncode == 0  # a member does
    listening = site.first.run("ss", "-ltnH").stdout
    assert [line.split()[3] for line in listening.splitlines() if ":22" not in line] == [place]


def test_a_host_changes_only_its_own_rows(site: Joined) -> None:
    own, other = site.second.chassis(), site.first.chassis()
    binding = southbound(site, "--bare", "--columns=_uuid", "find", "Port_Binding", "logical_port=port-h1").stdout
    assert southbound(site, "set", "Chassis", own, "external_ids:test=1").returncode == 0
    for words in (
        ("set", "Chassis", other, "external_ids:test=1"),
        ("chassis-del", other),
        ("destroy", "Port_Binding", binding.strip()),
        ("set", "SB_Global", ".", "external_ids:test=1"),
        ("set-connection", "ptcp:6642"),
    ):
        assert "RBAC" in southbound(site, *words).stderr, words
    # nor what the relay listens on, and with which role
    change = ["Winlab_Relay", {"op": "update", "table": "Connection", "where": [], "row": {"role": ""}}]
    words = ("ovsdb-client", "--timeout=60", *TLS, "transact", f"ssl:{site.first.address}:6642", json.dumps(change))
    assert "permission error" in site.second.run(*words, check=False).stdout


def test_nothing_is_left_for_a_second_setup(site: Joined) -> None:
    for host in site.hosts.all:
        before = state(host)
        host.winlab("host", "setup")
        assert state(host) == before


def test_doctor_knows_the_site(site: Joined) -> None:
    for host, says in ((site.first, "its relay listens"), (site.second, "the controller is connected")):
        checks = results.items(host.winlab("doctor", "--output", "json", check=False).stdout)
        found = {row["name"]: row for row in checks}
        assert found["OVN southbound"]["detail"].startswith(says)
        assert {found[name]["state"] for name in ("OVN southbound", "certificate", "tunnels")} == {"ok"}


def test_labs_are_made_on_the_first_host(site: Joined) -> None:
    done = site.second.winlab("create", "--spec", "1-0-1", "--until", "guests", check=False)
    assert done.returncode == 2
    assert "joined the site of another one" in done.stderr
    assert "ann@h1" in done.stderr


def test_a_host_can_not_become_a_member_of_two_sites(site: Joined) -> None:
    done = site.first.winlab("host", "setup", "--join", "h2", check=False)
    assert "was set up on its own" in done.stderr
    done = site.second.run("/etc/winlab/admit", "a b c d", stdin="{}", check=False)
    assert done.returncode != 0  # a member has no such program
    done = site.first.run("/etc/winlab/admit", "a b c d", stdin="{}", check=False)
    assert "can't be used" in done.stderr


@pytest.mark.parametrize("name", ["h2", "h1"])
def test_a_host_that_lost_power_comes_back_by_setup_alone(site: Joined, name: str) -> None:
    first, second = site.first, site.second
    host = {"h1": first, "h2": second}[name]
    host.off()
    if host is second:
        first.run("pkill", "sshd")  # it needs no ssh
    host.on()
    host.winlab("host", "setup")
    within(lambda: second.run("ovn-appctl", "-t", "ovn-controller", "connection-status").stdout == "connected\n")
    host.run("ip", "address", "add", f"{INSIDE[name]}/24", "dev", "inside")
    host.run("ip", "link", "set", "inside", "up")
    within(lambda: ping(second, INSIDE["h1"], LARGEST))


def test_the_first_host_stays_while_others_are_in_its_site(site: Joined) -> None:
    done = site.first.winlab("host", "teardown", check=False)
    assert "Other hosts have joined" in done.stderr
    assert site.second.chassis() in done.stderr


def test_hosts_that_left_have_nothing_of_the_site(site: Joined) -> None:
    gone = site.second.chassis()
    site.first.run("ovn-nbctl", "ls-del", "both")
    for host in site.hosts.all:
        host.run("ovs-vsctl", "del-br", "br-phy")
        host.run("ovs-vsctl", "del-port", "inside")
    site.second.winlab("host", "teardown")
    names = site.first.run("ovn-sbctl", "--bare", "--columns=name", "list", "Chassis").stdout
    assert gone not in names
    site.first.winlab("host", "teardown")
    for host in site.hosts.all:
        assert host.run("ls", "/etc/winlab", "/var/lib/winlab", check=False).returncode != 0
        assert not DAEMONS & set(host.processes())
        assert "6642" not in host.run("ss", "-ltnH").stdout


def test_hosts_leave_no_process_mount_or_namespace() -> None:
    with Hosts("h1", "h2") as made:
        first, second = made.all
        assert second.run("ssh", "-o", "BatchMode=yes", "ann@h1", "hostname", user="ann").stdout == "h1\n"
        first.run("sh", "-c", "echo kept >/etc/kept")
        first.off()
        first.on()
        assert first.run("cat", "/etc/kept").stdout == "kept\n"
        within(lambda: {"sshd", "tini"} <= set(first.processes()))
        assert made.left()  # it sees them
    assert made.left() == []
