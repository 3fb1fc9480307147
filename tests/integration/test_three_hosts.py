"""A site of three hosts: OVN's databases are a cluster, which works without any one host, and is recovered without two.

The hosts are namespaces (tests/hosts), each with libvirt, Open vSwitch and OVN that winlab started. The tests build on
each other: the last ones lose hosts for good, and take the site apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import results
from hosts import Host, Hosts, install, one_site, within
from test_hosts import TLS

pytestmark = pytest.mark.slow  # four minutes

NB, SB = "unix:/run/ovn/ovnnb_db.sock", "unix:/run/ovn/ovnsb_db.sock"
FOLDER = "/etc/winlab/tls"
OWN = ("-p", f"{FOLDER}/databases-key.pem", "-c", f"{FOLDER}/databases-certificate.pem")
PORTS = {"OVN_Northbound": (6641, 6643), "OVN_Southbound": (6645, 6644)}


@dataclass
class Site:
    """Three hosts: the third waited for the second one to join again."""

    hosts: Hosts
    waited: str  # what doctor said on the third host before
    alone: str  # and on the first

    @property
    def all(self) -> tuple[Host, Host, Host]:
        first, second, third = self.hosts.all
        return first, second, third


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    install()
    with Hosts("h1", "h2", "h3") as made:
        first, second, third = made.all
        one_site(first, second, third, user="ann")
        first.run("ovn-nbctl", "ls-add", "before")
        waited, alone = doctor(third)["OVN databases, nb"], doctor(first)["OVN databases"]
        join(second)
        yield Site(made, waited, alone)


def start_switch(host: Host) -> None:
    """Start Open vSwitch, and wait for the tunnels' address, without which a host can't join."""
    host.run("/usr/share/openvswitch/scripts/ovs-ctl", "start", "--system-id=random")
    host.add_tunnel_bridge()


def join(host: Host) -> None:
    host.winlab("host", "setup", "--join", "ann@h1", "--tunnel-address", host.tunnel_address, user="ann")


def doctor(host: Host) -> dict[str, str]:
    """The details of its checks, by name."""
    checks = results.items(host.winlab("doctor", "--output", "json", check=False).stdout)
    return {row["name"]: row["detail"] for row in checks}


def nbctl(host: Host, *words: str, check: bool = True) -> str:
    return host.run("ovn-nbctl", "--no-leader-only", "--timeout=60", *words, check=check).stdout


def status(host: Host, short: str, name: str) -> str:
    words = ("ovn-appctl", "-t", f"/run/ovn/ovn{short}_db.ctl", "cluster/status", name)
    return host.run(*words, check=False).stdout


def is_connected(host: Host) -> bool:
    return host.run("ovn-appctl", "-t", "ovn-controller", "connection-status", check=False).stdout == "connected\n"


def test_the_databases_stay_on_one_host_until_three_are_ready(site: Site) -> None:
    assert site.waited == "this host waits until a third one can have them"
    assert site.alone.startswith("they are on this host alone")


def test_all_three_hosts_are_members_with_the_same_rows(site: Site) -> None:
    for host in site.all:
        for short, name in (("nb", "OVN_Northbound"), ("sb", "OVN_Southbound")):
            said = status(host, short, name)
            assert all(f"{one.address}:" in said for one in site.all), said
            assert "Leader: unknown" not in said
        assert "(before)" in nbctl(host, "ls-list")
    kept = site.all[0].run("ls", "/var/lib/ovn").stdout.split()
    assert {"ovnnb_db.db.before-cluster", "ovnsb_db.db.before-cluster"} <= set(kept)


def test_members_of_the_group_use_the_database_on_each_of_them(site: Site) -> None:
    for host in site.all:
        host.run("usermod", "-aG", "libvirt", "ann")
        socket = "--db=unix:/run/winlab/ovnnb.sock"
        said = host.run("ovn-nbctl", socket, "--no-leader-only", "--timeout=20", "ls-list", user="ann").stdout
        assert "(before)" in said


def test_hosts_certificates_open_only_their_role(site: Site) -> None:
    first, second, _third = site.all
    for name, (port, raft) in PORTS.items():
        words = ("ovsdb-client", "--timeout=5", *TLS[:4])
        for place in (f"{first.address}:{port}", f"{first.address}:{raft}"):
            # also if it believes any server
            done = second.run(*words, "-C", f"{FOLDER}/databases-ca.pem", "dump", f"ssl:{place}", name, check=False)
            assert done.returncode != 0, place
            assert second.run("ovsdb-client", "-t", "5", "dump", f"tcp:{place}", name, check=False).returncode != 0
        allowed = ("ovsdb-client", "-t", "9", *OWN, "-C", f"{FOLDER}/databases-ca.pem")
        second.run(*allowed, "list-tables", f"ssl:{first.address}:{port}", name)
    for host in site.all:
        listening = {line.split()[3] for line in host.run("ss", "-ltnH").stdout.splitlines() if ":22" not in line}
        assert listening == {f"{host.address}:{port}" for port in (6641, 6642, 6643, 6644, 6645)}


def test_a_host_changes_only_its_own_rows_at_every_relay(site: Site) -> None:
    first, second, third = site.all
    for host in site.all:
        words = ("ovn-sbctl", "--timeout=9", "--no-leader-only", f"--db=ssl:{host.address}:6642", *TLS)
        own = (*words, "set", "Chassis", second.chassis(), "external_ids:test=1")
        # a relay waits up to 8 s between two attempts to connect
        within(lambda own=own: second.run(*own, check=False).returncode == 0)
        for row in (("Chassis", third.chassis()), ("SB_Global", ".")):
            assert "RBAC" in second.run(*words, "set", *row, "external_ids:test=1", check=False).stderr
    assert doctor(first)["OVN databases, nb"].startswith("on ")


def test_setup_again_teaches_all_hosts_the_others(site: Site) -> None:
    for host in site.all[::-1]:
        host.winlab("host", "setup")
        assert "this host has" not in host.winlab("host", "setup").stderr
    for host in site.all[1:]:
        remote = host.run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-remote").stdout
        assert all(f"ssl:{one.address}:6642" in remote for one in site.all)
    nbctl(site.all[2], "--wait=hv", "sync")


def test_without_the_first_host_the_others_networks_change(site: Site) -> None:
    first, second, third = site.all
    first.off()
    within(lambda: "Leader: unknown" not in status(second, "nb", "OVN_Northbound"))
    nbctl(second, "--wait=sb", "ls-add", "during")
    assert "(during)" in nbctl(third, "ls-list")
    within(lambda: is_connected(second) and is_connected(third))
    assert first.address in doctor(second)["OVN databases, sb"]
    first.on()
    first.winlab("host", "setup")
    within(lambda: is_connected(first))
    nbctl(first, "--wait=hv", "sync")
    assert "(during)" in nbctl(first, "ls-list")
    assert doctor(first)["OVN databases, nb"].startswith("on ")


def test_a_cluster_that_works_is_not_recovered(site: Site) -> None:
    done = site.all[0].winlab("hypervisor", "recover", "--yes", check=False)
    assert "need no recovery" in done.stderr


def test_two_of_three_lost_are_recovered_on_the_third(site: Site) -> None:
    first, second, third = site.all
    for host in (first, third):
        host.off()
    within(lambda: second.run("ovn-nbctl", "--timeout=5", "--no-leader-only", "show", check=False).returncode != 0)
    assert "no leader" in doctor(second)["OVN databases, nb"]
    second.winlab("hypervisor", "recover", "--yes")
    nbctl(second, "--wait=sb", "ls-add", "alone")
    within(lambda: is_connected(second))


def test_the_first_host_takes_the_recovered_databases_back(site: Site) -> None:
    first, second, third = site.all
    first.on()
    first.winlab("host", "setup")  # it has no leader, and says so
    first.winlab("hypervisor", "recover", "--yes", "--from", second.address)
    assert "(alone)" in nbctl(first, "ls-list")
    join(second)  # waits
    third.on()
    start_switch(third)
    join(third)
    for host in site.all:
        within(lambda host=host: is_connected(host))
        assert "(alone)" in nbctl(host, "ls-list")
    nbctl(first, "--wait=hv", "sync")
    assert doctor(first)["OVN databases, nb"].startswith("on ")


def test_a_member_that_leaves_takes_the_cluster_back_to_one_host(site: Site) -> None:
    first, second, third = site.all
    third.winlab("host", "teardown")
    assert third.run("ls", "/etc/winlab", check=False).returncode != 0
    assert "(alone)" in nbctl(first, "ls-list")
    first.winlab("host", "setup")
    assert status(first, "nb", "OVN_Northbound") == ""
    assert "(alone)" in nbctl(first, "ls-list")
    join(second)
    assert "6643" not in second.run("ss", "-ltnH").stdout
    second.winlab("host", "teardown")
    first.winlab("host", "teardown", "--force")
    for host in site.all[1:]:
        assert not {"ovn-northd", "ovn-controller"} & set(host.processes())
