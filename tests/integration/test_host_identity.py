"""A host of a site has its name for itself, and the first host's relay is the one that winlab would start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import Host, Hosts, add, install, one_site

from winlab.host import relay_program as program

KEY = "/etc/winlab/tls/key.pem"
NAME = "hypervisor-2"
JOIN = ("host", "setup", "--join", "root@h1")


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Host, Host]]:
    install()
    with Hosts("h1", "h2") as made:
        first, second = made.all
        one_site(first, second)
        yield first, second
    assert made.left() == []


def relay(host: Host) -> int:
    return int(host.run("cat", str(program.PID)).stdout)


def test_another_key_gets_no_certificate_while_the_name_is_taken(site: tuple[Host, Host]) -> None:
    first, second = site
    name = second.chassis()
    second.winlab(*JOIN)  # with the same key
    second.run("rm", KEY)
    done = second.winlab(*JOIN, check=False)
    assert "another key" in done.stderr
    assert f"chassis-del {name}" in done.stderr
    add(first, second)
    second.run("/usr/share/ovn/scripts/ovn-ctl", "stop_controller")
    first.run("ovn-sbctl", "--if-exists", "chassis-del", name)  # it may have been ended before it removed that itself
    assert "another key" in second.winlab(*JOIN, check=False).stderr
    second.run("/usr/share/ovn/scripts/ovn-ctl", "stop_controller")
    first.run("ovn-sbctl", "--if-exists", "chassis-del", name)
    first.winlab("hypervisor", "remove", NAME)
    second.winlab(*JOIN)
    assert name in first.run("ovn-sbctl", "--bare", "--columns=name", "list", "Chassis").stdout


def test_setup_restarts_a_relay_with_other_arguments_only(site: tuple[Host, Host]) -> None:
    first, _ = site
    first.winlab("host", "setup")
    before = relay(first)
    first.winlab("host", "setup")
    assert relay(first) == before
    first.run("kill", str(before))
    first.run("sh", "-c", f"while kill -0 {before} 2>/dev/null; do sleep 0.1; done")
    words = [*program.arguments()[:1], "--verbose=off", *program.arguments()[1:]]
    first.run(*words, "--detach", "--monitor", f"--pidfile={program.PID}")
    other = relay(first)
    first.winlab("host", "setup")
    assert relay(first) not in {before, other}
    assert "--verbose=off" not in first.run("cat", f"/proc/{relay(first)}/cmdline").stdout


def test_teardown_leaves_no_log_of_the_relay(site: tuple[Host, Host]) -> None:
    first, second = site
    for host in (second, first):
        host.run("ovs-vsctl", "del-br", "br-phy")
        host.winlab("host", "teardown")
    assert "winlab" not in first.run("ls", str(program.LOG.parent)).stdout
