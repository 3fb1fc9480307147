"""A site of two hosts and a laptop: the list of hypervisors, and one that is cut off or hangs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import results
from hosts import Host, Hosts, add, install, one_site
from hosts.host import WINLAB

URI = "qemu+ssh://root@h2/system"
NAME = "hypervisor-2"


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Host, Host, Host]]:
    """The first host, one that has joined it, and a laptop."""
    install()
    with Hosts("h1", "h2", "laptop") as made:
        first, second, laptop = made.all
        one_site(first, second)
        for host in (first, second):
            host.run("usermod", "-aG", "libvirt", "ann")
        yield first, second, laptop
    assert made.left() == []


@pytest.fixture
def added(site: tuple[Host, Host, Host]) -> tuple[Host, Host, Host]:
    add(site[0], site[1])
    return site


def test_a_host_that_has_joined_is_added_for_all_users_and_removed(site: tuple[Host, Host, Host]) -> None:
    first, second, _ = site
    add(first, second)
    done = first.winlab("hypervisor", "add", NAME, URI)  # its facts are read again
    assert "can carry labs" in done.stdout
    listed = results.items(first.winlab("hypervisor", "list", "-o", "json", user="ann").stdout)
    assert [(one["name"], one["answers"], one["machines"]) for one in listed] == [
        ("hypervisor-1", True, 0), (NAME, True, 0),
    ]  # fmt: skip
    assert listed[1]["memory_mib"] > 0
    shown = results.item(first.winlab("hypervisor", "show", NAME, "-o", "json").stdout)
    assert shown["facts"]["chassis"] == second.chassis()
    assert set(shown["versions"]) == {"libvirt", "QEMU", "libvirt library"}
    assert first.winlab("list").returncode == 0
    first.winlab("hypervisor", "remove", NAME)
    assert [one["name"] for one in results.items(first.winlab("hypervisor", "list", "-o", "json").stdout)] == [
        "hypervisor-1"
    ]


@pytest.mark.parametrize(
    ("name", "uri", "code", "says"),
    [
        (NAME, "qemu:///system", 2, "this host"),
        ("hypervisor-1", URI, 2, "first hypervisor"),
        (NAME, "qemu+ssh://root@h1/system", 6, "host setup --join"),
        (NAME, "qemu+ssh://root@198.51.100.99/system", 4, "ssh root@198.51.100.99 true"),
    ],
)
def test_what_cannot_be_added(site: tuple[Host, Host, Host], name: str, uri: str, code: int, says: str) -> None:
    done = site[0].winlab("hypervisor", "add", name, uri, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def test_one_that_is_cut_off_is_reported_and_the_rest_is_shown(added: tuple[Host, Host, Host]) -> None:
    first, second, _ = added
    with second.cut_off():
        for words in (("list",), ("hypervisor", "list")):
            done = first.winlab(*words, check=False)
            assert done.returncode == 20, done.stderr
            assert NAME in done.stdout + done.stderr
        assert first.winlab("destroy", "--lab", "none", check=False).returncode == 20  # it may have something there
        done = first.winlab("hypervisor", "remove", NAME, check=False)
        assert done.returncode == 4
        assert "winlab hypervisor forget" in done.stderr
    assert first.winlab("hypervisor", "list").returncode == 0


def test_one_whose_libvirt_hangs_is_reported(added: tuple[Host, Host, Host]) -> None:
    first, second, _ = added
    with second.stuck():
        done = first.winlab("hypervisor", "list", check=False)
        assert done.returncode == 20
        assert "it hangs, or the host is overloaded" in done.stdout
    assert first.winlab("hypervisor", "list").returncode == 0


def test_doctor_compares_the_hosts(added: tuple[Host, Host, Host]) -> None:
    first, second, _ = added
    records = results.items(first.winlab("doctor", "-o", "json", check=False).stdout)
    found = {(one["hypervisor"], one["name"]): one for one in records if one["hypervisor"]}
    for name in ("hypervisor-1", NAME):
        assert found[name, "answers"]["detail"] == "yes"
        assert found[name, "clock"]["state"] == found[name, "QEMU"]["state"] == "ok"
        assert found[name, "tunnels"]["detail"] == "whole packets pass"
    assert NAME.upper() in first.winlab("doctor", check=False).stdout
    second.run("ip", "link", "set", "br-phy", "mtu", "1400")
    try:
        assert f"none to {first.tunnel_address}" in first.winlab("doctor", check=False).stdout
    finally:
        second.run("ip", "link", "set", "br-phy", "mtu", "1500")
    with second.cut_off():
        done = first.winlab("doctor", check=False)
        assert done.returncode == 4
        assert f"answers on {NAME}" in done.stdout


def test_a_member_sees_how_far_each_host_has_followed_although_one_is_off(added: tuple[Host, Host, Host]) -> None:
    """A lab of the first host is made while another one is off: OVN's "all have followed" never comes then."""
    first, second, _ = added
    own, other = first.chassis(), second.chassis()
    wait = (
        "import sys; from winlab.adapters.overlay import ovn\n"
        "with ovn.connect() as northbound: northbound.await_followers(float(sys.argv[2]), sys.argv[1])"
    )
    with second.cut_off():
        assert first.run(WINLAB[0], "-c", wait, own, "60", user="ann").returncode == 0
        failed = first.run(WINLAB[0], "-c", wait, other, "3", user="ann", check=False)
    assert "does not follow" in failed.stderr
    socket = "unix:/run/winlab/ovnsb.sock"
    assert first.run("ovn-sbctl", f"--db={socket}", "show", user="ann").returncode == 0
    refused = first.run("ovn-sbctl", f"--db={socket}", "chassis-del", other, user="ann", check=False)
    assert refused.returncode != 0
    assert first.run("ovn-sbctl", f"--db={socket}", "show", user="nobody", check=False).returncode != 0


def test_a_laptop_reaches_the_site_by_ssh_alone(added: tuple[Host, Host, Host]) -> None:
    _, second, laptop = added
    there = ("env", "WINLAB_LIBVIRT_URI=qemu+ssh://root@h1/system", *WINLAB)
    listed = results.items(laptop.run(*there, "hypervisor", "list", "-o", "json", user="ann").stdout)
    assert [(one["name"], one["answers"]) for one in listed] == [("hypervisor-1", True), (NAME, True)]
    assert "There are no labs" in laptop.run(*there, "list", user="ann").stdout
    assert "ssh" not in laptop.processes()
    done = second.winlab("list", check=False)
    assert done.returncode == 2
    assert "WINLAB_LIBVIRT_URI" in done.stderr
