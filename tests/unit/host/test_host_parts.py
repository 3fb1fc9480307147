"""Texts, merges and judgements of the host's setup and doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from winlab.design.plan import addresses, tags
from winlab.errors import ConflictError, HostError
from winlab.events import Quiet
from winlab.host import (
    bridges,
    check,
    checks_machine,
    checks_services,
    daemons,
    fabric,
    firewall,
    kvmprobe,
    storage,
    units,
)
from winlab.host import setup as host_setup
from winlab.host.check import Host, Requirement, Status

RULESET = """\
table inet winlab
delete table inet winlab
table inet winlab {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.9.0.0/20 oifname != "br-winlab" counter masquerade comment "labs go out as the host"
	}

	chain input {
		type filter hook input priority filter; policy accept;
		iifname "br-winlab" jump guests
	}

	chain guests {
		ct state established,related counter accept
		meta l4proto { icmp, ipv6-icmp } counter accept
		meta l4proto { tcp, udp } th dport 53 counter accept comment "a name server on this host"
		ether saddr & ff:ff:ff:00:00:00 == 52:54:01:00:00:00 counter accept comment "labs whose network.reach is all"
		counter drop comment "labs reach no service of this host"
	}

	chain forward {
		type filter hook forward priority filter; policy accept;
		iifname "br-winlab" meta l4proto { tcp, udp } th dport 53 counter accept comment "name servers"
		iifname "br-winlab" ip daddr 169.254.0.0/16 counter drop comment "labs reach no metadata service"
		iifname "br-winlab" ether saddr & ff:ff:ff:00:00:00 == 52:54:01:00:00:00 counter accept \
comment "containers, for labs whose network.reach is all"
		iifname "br-winlab" ct direction original ct status dnat counter drop comment "labs reach no container's port"
		iifname "br-winlab" oifname "docker*" oifname != "br-winlab" counter drop comment "closed to labs: docker*"
		iifname "br-winlab" oifname "br-*" oifname != "br-winlab" counter drop comment "closed to labs: br-*"
		iifname "br-winlab" oifname "podman*" oifname != "br-winlab" counter drop comment "closed to labs: podman*"
		iifname "br-winlab" oifname "cni*" oifname != "br-winlab" counter drop comment "closed to labs: cni*"
		iifname "br-winlab" oifname "virbr*" oifname != "br-winlab" counter drop comment "closed to labs: virbr*"
		iifname "br-winlab" oifname "lxdbr*" oifname != "br-winlab" counter drop comment "closed to labs: lxdbr*"
		iifname "br-winlab" oifname "incusbr*" oifname != "br-winlab" counter drop comment "closed to labs: incusbr*"
		iifname "br-winlab" oifname "lxcbr*" oifname != "br-winlab" counter drop comment "closed to labs: lxcbr*"
		iifname "br-winlab" counter accept
		oifname "br-winlab" ct state established,related counter accept
		oifname "br-winlab" counter drop comment "labs are reached from this host only"
	}

	chain sign {
		type filter hook output priority filter; policy accept;
		ip daddr 127.119.105.110 udp dport 9 counter drop comment "shows to any user that the table is there"
	}
}
"""


def test_the_firewall_table() -> None:
    assert firewall.ruleset("10.9.0.0/20", "system") == RULESET


def test_on_the_userspace_datapath_guests_do_not_reach_the_kernel_by_their_own_devices() -> None:
    text = firewall.ruleset("10.9.0.0/20", "netdev")
    assert 'hook prerouting priority raw; policy accept;\n\t\tiifname "vnet*" counter drop' in text
    kept = text[: text.index("\tchain taps")] + text[text.index("\tchain input") :]
    assert kept == RULESET


def test_a_bridge_with_uplinks_stays_open(tmp_path: Path) -> None:
    """By a gateway, a network card, or a bond: not those of containers, nor what has another name."""
    routes, links = tmp_path / "route", tmp_path / "net"
    routes.write_text(
        "Iface\tDestination\tGateway\tFlags\n"
        "eth0\t00000000\t010200C0\t0003\n"
        "br-lan\t00000000\t010200C0\t0003\n"
        "br-winlab\t0000000A\t010200C0\t0003\n"
        "docker0\t000011AC\t00000000\t0001\n"
    )
    plugged = {"br-card": "eth1", "br-bond": "bond0", "br-0123456789ab": "veth1", "virbr0": "vnet7", "lan": "eth2"}
    for bridge, port in plugged.items():
        (links / bridge / "brif" / port).mkdir(parents=True)
        (links / port).mkdir()
    for card in ("eth1/device", "bond0/lower_eth3", "eth2/device"):
        (links / card).mkdir()
    assert bridges.leading_on(routes, links) == ["br-bond", "br-card", "br-lan"]
    assert bridges.leading_on(tmp_path / "none", tmp_path / "nowhere") == []
    text = firewall.ruleset("10.9.0.0/20", "system", ["br-lan"])
    assert text.index('oifname "br-lan" counter accept comment "br-lan leads on"') < text.index('oifname "br-*"')


def test_uplinks_have_an_mtu(tmp_path: Path) -> None:
    routes, links = tmp_path / "route", tmp_path / "net"
    rows = ["Iface Destination Gateway Flags", "ens4 00000000 0101A8C0 0003", "ens4 0001A8C0 00000000 0001"]
    rows += ["br-winlab 0000A8C0 0101A8C0 0003", "wg0 0000000A 0101000A 0003", "gone 0000000B 0101000A 0003"]
    routes.write_text("\n".join(rows) + "\n")
    for name, mtu in (("ens4", "1460"), ("br-winlab", "1280"), ("wg0", "1420")):
        (links / name).mkdir(parents=True)
        (links / name / "mtu").write_text(f"{mtu}\n")
    assert bridges.uplinks(routes, links) == {"ens4": 1460, "wg0": 1420}
    assert bridges.uplinks(tmp_path / "none", links) == {}


def test_messages_about_uplinks() -> None:
    """M8: clouds and VPNs take smaller packets than nodes send."""
    assert checks_services.judge_uplinks({"ens4": 1500, "eth1": 9000}).state is Status.OK
    assert checks_services.judge_uplinks({}).state is Status.OK
    small = checks_services.judge_uplinks({"ens4": 1460, "wg0": 1420, "eth1": 1500})
    assert small.state is Status.WARN
    assert small.detail == "ens4 takes packets of 1460 bytes, wg0 takes packets of 1420 bytes, nodes send 1500"
    assert "--set network.mtu=1420" in small.cure
    assert "--set network.mtu=1280" in checks_services.judge_uplinks({"wg0": 576}).cure


def test_rules_for_docker_are_tagged() -> None:
    assert all(rule[rule.index("--comment") + 1] == "winlab" and rule[-1] == "ACCEPT" for rule in firewall.RULES)


def test_every_object_made_in_firewalld_is_undone() -> None:
    made = {word.split("=")[1] for words in firewall.FIREWALLD_MAKE for word in words if word.startswith("--new-")}
    gone = {word.split("=")[1] for words in firewall.FIREWALLD_UNDO for word in words if word.startswith("--delete-")}
    assert made == gone == {"winlab", "winlab-out"}


def test_chains_that_drop_forwarded_packets() -> None:
    def chain(family: str, table: str, **more: str) -> dict[str, object]:
        return {"chain": {"family": family, "table": table, "name": "forward", **more}}

    items = [
        {"metainfo": {}},
        chain("inet", "mine", hook="forward", policy="drop"),
        chain("inet", "winlab", hook="forward", policy="accept"),
        chain("ip", "filter", hook="forward", policy="drop"),
        chain("ip6", "six", hook="forward", policy="drop"),
        chain("inet", "helper"),
    ]
    assert firewall.dropping_chains(json.dumps({"nftables": items})) == ["inet mine forward"]
    assert firewall.dropping_chains("nonsense") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "winlab:br-winlab"),
        ("phys:br-ex", "phys:br-ex,winlab:br-winlab"),
        ("a:b, winlab:br-winlab", "a:b,winlab:br-winlab"),
    ],
)
def test_our_mapping_is_added_to_the_others(before: str, after: str) -> None:
    assert fabric.merge_mappings(before, "winlab", "br-winlab") == after
    assert fabric.merge_mappings(after, "winlab", "br-winlab") == after


def test_a_mapping_of_the_same_name_is_a_conflict() -> None:
    with pytest.raises(ConflictError):
        fabric.merge_mappings("winlab:br-ex", "winlab", "br-winlab")


def test_only_our_mapping_is_dropped() -> None:
    assert fabric.drop_mapping("a:b,winlab:br-winlab,c:d", "winlab", "br-winlab") == "a:b,c:d"
    assert fabric.drop_mapping("winlab:br-winlab", "winlab", "br-winlab") == ""
    assert fabric.drop_mapping("winlab:br-ex", "winlab", "br-winlab") == "winlab:br-ex"


def test_another_ovn_is_left_alone() -> None:
    for remote in ("", "unix:/run/ovn/ovnsb_db.sock", "tcp:127.0.0.1:6642", "ssl:[::1]:6642"):
        fabric.check_foreign_ovn({"ovn-remote": remote} if remote else {})
    for remote in ("tcp:192.0.2.9:6642", "tcp:127.0.0.1:6642,tcp:192.0.2.9:6642"):
        with pytest.raises(ConflictError, match="another OVN"):
            fabric.check_foreign_ovn({"ovn-remote": remote})


def test_the_bridge_has_a_fixed_local_address_per_host() -> None:
    mac = fabric.mac_for("one")
    assert mac == fabric.mac_for("one") != fabric.mac_for("two")
    assert int(mac[:2], 16) & 0b11 == 0b10  # locally administered, not a group
    assert len(mac) == 17


def test_the_unit_runs_setup_by_this_interpreter() -> None:
    text = units.unit_text("/opt/a b/100%/python")
    assert 'ExecStart="/opt/a b/100%%/python" -I -m winlab host setup\n' in text
    assert " -I -m winlab host setup --trust-python\n" in units.unit_text("/usr/bin/python3", trust=True)
    assert "After=network-online.target " in text
    assert "Wants=network-online.target\n" in text
    assert "openvswitch-switch.service" in text
    assert "Before=libvirt-guests.service" in text
    assert "WantedBy=multi-user.target" in text


def test_the_socket_is_made_for_the_group() -> None:
    assert "d /run/winlab 2750 root libvirt -\n" in units.tmpfiles_text()
    assert units.drop_in_text("0002").endswith("[Service]\nUMask=0002\n")
    # ovsdb-server takes 0770 less the umask; the group must keep the right to write.
    assert 0o770 & ~int(daemons.GROUP_UMASK, 8) == 0o770


def test_libvirt_without_polkit_lets_the_group_in() -> None:
    lines = daemons.LIBVIRTD_TEXT.splitlines()
    assert 'unix_sock_group = "libvirt"' in lines
    assert 'auth_unix_rw = "none"' in lines
    assert 'unix_sock_rw_perms = "0770"' in lines


def test_the_first_units_that_exist_are_used() -> None:
    assert daemons.pick_units("libvirt", lambda _unit: True) == ("libvirtd.socket",)
    assert daemons.pick_units("libvirt", lambda unit: unit.startswith("virt"))[0] == "virtqemud.socket"
    assert daemons.pick_units("ovs", lambda _unit: False) == ()


def test_a_pid_of_another_program_does_not_count(tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    assert daemons.running(pidfile, "python") is None
    pidfile.write_text("nonsense")
    assert daemons.running(pidfile, "python") is None
    pidfile.write_text("1\n")
    assert daemons.running(pidfile, "certainly-not-this") is None


def test_the_pool() -> None:
    xml = storage.pool_xml()
    assert storage.pool_path(xml) == "/var/lib/winlab/pool"
    assert "<mode>0711</mode>" in xml


def test_labs_are_known_by_their_tag() -> None:
    tag = "<w:node xmlns:w='urn:winlab:domain:9' lab='demo' node='controller-1'/>"
    uuid = "<uuid>{}</uuid>".format
    own = uuid(addresses.make_uuid("demo", "controller-1"))
    other = "<o:node xmlns:o='urn:other' lab='theirs'/>"
    whole = f"<domain><name>x</name>{own}<metadata>{other}{tag}</metadata></domain>"
    assert (tags.lab_of(whole), tags.copied_from(whole)) == ("demo", None)
    copy = whole.replace(own, uuid(addresses.make_uuid("demo", "controller-2")))  # as by virt-clone
    assert (tags.lab_of(copy), tags.copied_from(copy)) == (None, "demo")
    assert tags.lab_of(f"<domain><name>winlab</name><metadata>{other}</metadata></domain>") is None
    assert tags.lab_of("<domain><name>winlab</name></domain>") is None


def test_the_payload_has_its_parts_where_the_processor_looks() -> None:
    rom = kvmprobe.payload()
    assert len(rom) == 65536
    assert rom[-16:-11] == b"\xea\x00\x00\x00\xf0"  # the reset vector: a far jump, as firmware does
    assert rom[:2] == b"\xfa\xfc"
    # Descriptors in a ROM must be marked accessed: the processor can't do it, and some hypervisors hang trying.
    for offset in (8, 16, 24):
        assert rom[kvmprobe.GDT + offset + 5] & 1
    assert kvmprobe.EXIT_CODE == 85


def test_the_far_jumps_of_the_payload_meet_their_blocks() -> None:
    rom = kvmprobe.payload()
    assert rom[0x28:0x2D] == b"\xb8\x10\x00\x00\x00"
    assert rom[0xA0:0xA5] == b"\xbc\x00\x80\x00\x00"
    assert rom[kvmprobe.TICK : kvmprobe.TICK + 2] == b"\xff\xc3"


@pytest.mark.parametrize(
    ("works", "recorded", "state"),
    [
        (True, None, Status.OK),
        (False, None, Status.WARN),
        (False, "tcg", Status.WARN),
        (False, "kvm", Status.FAIL),
        (None, "kvm", Status.OK),
        (None, "tcg", Status.WARN),
        (None, None, Status.WARN),
    ],
)
def test_messages_about_kvm(works: bool | None, recorded: str | None, state: Status) -> None:
    found = checks_machine.judge_kvm(works, "Why.", recorded)
    assert found.state is state
    assert bool(found.cure) is (state is not Status.OK)


@pytest.mark.parametrize(
    ("mode", "group", "state"),
    [
        (0o600, "root", "fail"),
        (0o660, "kvm", "ok"),
        (0o660, "root", "fail"),
        (0o666, "root", "ok"),
        (0o640, "kvm", "fail"),
    ],
)
def test_messages_about_the_device(mode: int, group: str, state: str) -> None:
    assert checks_machine.judge_kvm_mode(0o020000 | mode, group).state == state


def test_messages_about_capacity() -> None:
    assert checks_machine.judge_memory(8000, 0).state is Status.OK
    assert checks_machine.judge_memory(8000, 7000).state is Status.OK
    assert checks_machine.judge_memory(8000, 7500).state is Status.WARN
    assert checks_machine.judge_memory(8000, 8001).state is Status.FAIL
    assert checks_machine.judge_disk(100, 0).state is Status.OK
    assert checks_machine.judge_disk(100, 120).state is Status.WARN
    assert checks_machine.judge_disk(20, 120).state is Status.FAIL
    assert checks_machine.judge_disk(3, 0).state is Status.FAIL
    assert checks_machine.judge_processors(2, 4).state is Status.WARN
    assert checks_machine.judge_processors(4, 4).state is Status.OK


def test_firmware_is_chosen_from_descriptors() -> None:
    mapping = {"device": "flash", "executable": {"filename": "/c.fd"}, "nvram-template": {"filename": "/v.fd"}}
    target = {"architecture": "x86_64", "machines": ["pc-q35-*"]}
    good = {"interface-types": ["uefi"], "mapping": mapping, "targets": [target]}
    assert checks_machine.firmware_files(json.dumps(good)) == ["/c.fd", "/v.fd"]
    assert checks_machine.firmware_files(json.dumps({**good, "interface-types": ["bios"]})) == []
    assert checks_machine.firmware_files(json.dumps({**good, "targets": [{"architecture": "aarch64"}]})) == []
    memory = {**good, "mapping": {"device": "memory", "filename": "/m.fd"}}
    assert checks_machine.firmware_files(json.dumps(memory)) == ["/m.fd"]


def test_messages_about_the_group() -> None:
    assert checks_services.judge_group("ann", False, False, True).state is Status.OK
    assert checks_services.judge_group("ann", True, True, False).state is Status.OK
    waiting = checks_services.judge_group("ann", True, False, False)
    assert (waiting.state, "Log out and in" in waiting.cure) == (Status.FAIL, True)
    stranger = checks_services.judge_group("ann", False, False, False)
    assert "usermod -aG libvirt ann" in stranger.cure


def test_messages_about_name_servers() -> None:
    assert checks_services.judge_resolvers(["192.0.2.1"], ["192.0.2.1"]).state is Status.OK
    assert checks_services.judge_resolvers(["192.0.2.1"], ["192.0.2.2"]).state is Status.WARN


def test_a_broken_check_does_not_hide_the_others() -> None:
    @check.named("this", "Because.")
    def broken(_host: Host) -> list[Requirement]:
        raise ZeroDivisionError("oops")

    @check.named("that", "Because.")
    def refused(_host: Host) -> list[Requirement]:
        raise HostError("No.", cure="Do.")

    @check.named("those", "Because.")
    def closed(_host: Host) -> list[Requirement]:
        raise PermissionError(13, "Permission denied", "/x")

    assert broken(Host())[0] == Requirement(
        "this",
        Status.FAIL,
        "The check itself failed: ZeroDivisionError: oops",
        "Because.",
        "Report this; it is a bug in winlab.",
    )
    assert refused(Host())[0] == Requirement("that", Status.FAIL, "No.", "Because.", "Do.")
    found = closed(Host())[0]
    assert (found.state, found.why) == (Status.WARN, "Because.")
    assert "'/x'" in found.detail
    assert "sudo winlab doctor" in found.cure


def test_setup_and_teardown_ask_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    from winlab.errors import AccessError

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for function in (host_setup.setup, host_setup.teardown):
        with pytest.raises(AccessError) as caught:
            function(Quiet())
        assert "sudo winlab host" in caught.value.cure
