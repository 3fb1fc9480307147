"""A host joins a site: which addresses it takes, whom it asks as whom, and what is in the way."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from winlab import settings
from winlab.adapters.remote import CAUTIOUS, Remote
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError
from winlab.events import Quiet
from winlab.host import fabric
from winlab.host import relay_program as program
from winlab.host import setup as host_setup
from winlab.host.changes import Record
from winlab.host.check import Status
from winlab.host.site import certificates, checks, join, messages, tunnels
from winlab.host.site.messages import Request
from winlab.run import Result

LINKS = [
    {"ifname": "eth0", "mtu": 1500, "addr_info": [{"local": "198.51.100.2", "prefixlen": 24}]},
    {"ifname": "br-phy", "mtu": 1500, "addr_info": [{"local": "203.0.113.2", "prefixlen": 24}]},
    {"ifname": "wg0", "mtu": 1337, "addr_info": [{"local": "192.0.2.2", "prefixlen": 24}]},
]
NOW = datetime.datetime.now(datetime.UTC)


def answer(text: str) -> Any:
    return lambda args, **_more: Result(tuple(args), 0, text, "", 0.0)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "run", answer(json.dumps(LINKS)))
    monkeypatch.setattr(fabric, "bridges", lambda: ["br-int", "br-phy", settings.BRIDGE])
    monkeypatch.setattr(fabric, "ovs_ids", lambda: {"ovn-encap-ip": "203.0.113.2"})


def test_ssh_runs_as_the_user_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "root")
    own = join.command(Remote("h1", port=2222))
    assert own[0] == "ssh"
    assert {*CAUTIOUS, "-oConnectTimeout=10", "2222"} <= set(own)
    assert own[-1] == "h1"
    monkeypatch.setenv("SUDO_USER", "ann")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setattr(Path, "expanduser", lambda path: Path("/home/ann"))
    theirs = join.command(Remote("h1"))
    assert theirs[:4] == ["runuser", "-u", "ann", "--"]
    assert {"HOME=/home/ann", "SSH_AUTH_SOCK=/run/agent"} <= set(theirs)


def test_the_databases_of_another_ovn_are_not_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    known = HostFacts(chassis="c3", southbound="ssl:198.51.100.1:6642", databases={"c3": "198.51.100.3"})
    monkeypatch.setattr(host_setup.joining, "join", lambda *_: (known, {}))
    monkeypatch.setattr(host_setup.facts, "write_facts", lambda *_: pytest.fail("it joined"))
    monkeypatch.setattr(host_setup.databases, "wait_for_cluster", lambda *_: pytest.fail("they are gone"))
    monkeypatch.setattr(fabric, "ovs_ids", lambda: {"ovn-remote": "unix:/run/ovn/ovnsb_db.sock"})
    record: Any = None
    with pytest.raises(ConflictError, match="another OVN"):
        host_setup._join(HostFacts(), host_setup.Wanted(join="h1"), record, Quiet())


def test_a_host_that_was_set_up_on_its_own_can_not_join() -> None:
    join.check(HostFacts())
    join.check(HostFacts(recorded=True, joined="h1"))
    with pytest.raises(ConflictError, match="set up on its own") as caught:
        join.check(HostFacts(recorded=True))
    assert "teardown" in caught.value.cure


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """Asks a first host that runs a script."""
    path = tmp_path / "bin/ssh"
    path.parent.mkdir()
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.delenv("SUDO_USER", raising=False)

    def ask(script: str) -> str:
        path.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
        path.chmod(0o755)
        key = certificates.make_key()
        request = certificates.make_request("c2", key)
        asked = Request(chassis="c2", request=request, tunnel_address="203.0.113.2", tunnel_mtu=1442)
        return join.ask(Remote("h1", "ann"), asked)

    return ask


def test_a_first_host_that_prints_endlessly_is_not_heard_to_the_end(ssh: Callable[[str], str]) -> None:
    with pytest.raises(HostError, match="ann@h1 printed more than an answer") as caught:
        ssh("exec cat /dev/zero")
    assert str(messages.LARGEST) in caught.value.why
    assert "'ssh ann@h1 true' prints nothing" in caught.value.cure


def test_the_cure_says_how_to_keep_an_agent_that_sudo_hides(
    ssh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cure() -> str:
        with pytest.raises(HostError, match="did not admit") as caught:
            ssh("echo Permission denied >&2; exit 255")
        assert caught.value.why == "Permission denied"
        return caught.value.cure

    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert "agent" not in cure()
    monkeypatch.setenv("SUDO_USER", "root")  # ssh runs as it is
    assert "'sudo --preserve-env=SSH_AUTH_SOCK winlab host setup --join ssh://ann@h1'" in cure()
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert "agent" not in cure()


def test_what_the_first_host_s_shell_prints_is_left_out_of_the_answer(ssh: Callable[[str], str]) -> None:
    assert ssh("""echo Welcome; echo '{"version": 1}'; echo""") == '{"version": 1}'
    assert ssh("exit 0") == ""


def test_the_command_on_the_first_host_needs_no_shell_of_bourne_s() -> None:
    assert shlex.split(join.REMOTE) == ["sh", "-c", join.SCRIPT]


def test_a_certificate_of_others_in_open_vswitch_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = {"private_key": "/etc/other/key", "certificate": "/etc/other/cert", "ca_cert": "/etc/other/ca"}
    monkeypatch.setattr(fabric, "vsctl", lambda *_words, **_more: None)
    monkeypatch.setattr(fabric, "rows", lambda _result: [row])
    with pytest.raises(ConflictError, match="/etc/other/cert") as caught:
        join.ensure_controller(HostFacts(), Record(tmp_path / "record"), Quiet())
    assert "del-ssl" in caught.value.cure


def test_the_controller_of_another_site_is_in_the_way() -> None:
    ours = "ssl:198.51.100.1:6642"
    fabric.check_foreign_ovn({"ovn-remote": ours}, ours)
    fabric.check_foreign_ovn({}, ours)
    for remote, own in (("ssl:192.0.2.9:6642", ours), (ours, fabric.SB), (fabric.SB, ours)):
        with pytest.raises(ConflictError, match="another OVN"):
            fabric.check_foreign_ovn({"ovn-remote": remote}, own)


@pytest.mark.parametrize("text", ["h1", "", "127.0.0.1", "224.0.0.1", "0.0.0.0", "2001:db8::1", "10.0.0.0/8"])
def test_the_address_of_tunnels_is_one_that_others_reach(text: str) -> None:
    with pytest.raises(UsageError, match="can't be the address of tunnels") as caught:
        tunnels.parse(text)
    assert "--tunnel-address" in caught.value.cure


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize(
    ("address", "datapath", "wrong"),
    [
        ("203.0.113.2", "netdev", ""),
        ("198.51.100.2", "system", ""),
        ("198.51.100.2", "netdev", "can't use the address"),
        ("192.0.2.2", "system", "packets of 1337 bytes"),
        ("192.0.2.77", "system", "does not have the address"),
    ],
)
def test_on_the_userspace_datapath_tunnels_need_a_bridge(address: str, datapath: str, wrong: str) -> None:
    found = tunnels.trouble(address, datapath)
    assert (wrong in found) if wrong else not found


@pytest.mark.usefixtures("links")
def test_the_largest_packet_in_a_tunnel(tmp_path: Path) -> None:
    assert tunnels.ensure("203.0.113.2", "netdev", Record(tmp_path / "record"), Quiet()) == 1442
    with pytest.raises(HostError, match="can't use the address") as caught:
        tunnels.ensure("198.51.100.2", "netdev", Record(tmp_path / "record"), Quiet())
    assert "ovs-vsctl add-br br-phy" in caught.value.cure
    assert "ip address del 198.51.100.2/24 dev eth0" in caught.value.cure


def test_an_address_that_only_this_host_reaches_is_not_one_for_tunnels(monkeypatch: pytest.MonkeyPatch) -> None:
    for ids, recorded in (({}, ""), ({"ovn-encap-ip": "127.0.0.1"}, ""), ({"ovn-encap-ip": "10.0.0.1"}, "10.0.0.1")):
        monkeypatch.setattr(fabric, "ovs_ids", lambda ids=ids: ids)
        assert tunnels.recorded() == recorded


def test_doctor_says_when_a_certificate_ends() -> None:
    authority, key = certificates.make_authority("c1"), certificates.make_key()
    request = certificates.make_request("c2", key)
    held = certificates.sign(request, "c2", "203.0.113.2", certificates.CONNECTS, authority)
    for days, state in ((0, Status.OK), (300, Status.WARN), (400, Status.FAIL)):
        found = checks.judge_certificate(held, "ann@h1", NOW + datetime.timedelta(days=days))
        assert found.state is state
        assert found.state is Status.OK or "--join ann@h1" in found.cure
    assert checks.judge_certificate("", "", NOW).state is Status.FAIL


def test_a_single_host_has_nothing_of_this() -> None:
    single = HostFacts(chassis="c1")
    assert not {"joined", "southbound", "tunnel_mtu"} & set(single.model_dump())
    assert checks.site(checks.Host(single)) == []


def test_hosts_can_not_change_what_the_relay_listens_on() -> None:
    tables = json.loads(program.SCHEMA)["tables"]
    assert {"RBAC_Role", "RBAC_Permission"} <= set(tables)  # without them every role may
    _, insert, _root = json.loads(program.rows("198.51.100.1"))
    assert insert["row"]["role"] == "ovn-controller"
    assert insert["row"]["target"] == "pssl:6642:198.51.100.1"


@pytest.mark.parametrize("address", ["203.0.113.2,203.0.113.3", "h1"])
def test_more_than_one_address_of_tunnels_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "ovs_ids", lambda: {tunnels.KEY: address})
    with pytest.raises(HostError, match=address) as caught:
        tunnels.recorded()
    assert "--tunnel-address A" in caught.value.cure


def test_a_damaged_key_of_this_host_is_reported(links: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "FOLDER", tmp_path)
    monkeypatch.setattr(program, "KEY", tmp_path / "key.pem")
    monkeypatch.setattr(program, "AUTHORITY", tmp_path / "ca.pem")
    monkeypatch.setattr(join, "_resolve", lambda _: "198.51.100.1")
    monkeypatch.setattr(tunnels, "towards", lambda _: "198.51.100.2")
    program.KEY.write_bytes(b"\xff")
    with pytest.raises(HostError, match=r"key\.pem', is damaged") as caught:
        join.join("h1", "203.0.113.2", HostFacts(chassis="c2"), Record(tmp_path / "changes.yaml"), Quiet())
    assert "chassis-del c2" in caught.value.cure
