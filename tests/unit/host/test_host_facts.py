"""Host facts, name servers, the record of changes, and the external subnet."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winlab import files
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError
from winlab.host import facts, subnet
from winlab.host.changes import HEADER, Record
from winlab.host.subnet import Used


def test_without_a_file_the_defaults_are_assumed(tmp_path: Path) -> None:
    found = facts.read_facts(tmp_path / "host.yaml")
    assert not found.recorded
    assert (found.external_cidr, found.external_gateway) == ("172.31.240.0/20", "172.31.240.1")
    assert (found.accelerator, found.datapath, found.resolvers) == ("kvm", "system", ["1.1.1.1", "9.9.9.9"])


def test_facts_survive_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "host.yaml"
    said = HostFacts(external_cidr="10.231.240.0/20", resolvers=["192.0.2.53"], accelerator="tcg", chassis="c1")
    facts.write_facts(said, path)
    assert facts.read_facts(path) == said.model_copy(update={"recorded": True})
    assert path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in path.parent.iterdir()] == ["host.yaml"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("external_cidr: [", "line 2"),
        ("- a\n", "not a mapping"),
        ("chassis: c1\nexternal_cidr: 10.0.0.1/20\n", "line 2, external_cidr"),
        ("external_cidr: 10.0.0.0/30\n", "at least a /24"),
        ("chassis: c1\n\naccelerator: xen\n", "line 3, accelerator"),
        ("resolvers: [dns]\n", "line 1, resolvers"),
        ("unheard: of\n", "line 1, unheard"),
    ],
)
def test_bad_facts_are_named_with_their_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "host.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        facts.read_facts(path)
    assert told in str(caught.value)
    assert "winlab host setup" in caught.value.cure


def test_facts_that_can_not_be_read_have_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "host.yaml"
    path.write_bytes(b"chassis: \xff\n")
    for place in (path, tmp_path):  # no text, and no file
        with pytest.raises(UsageError, match="can't be read") as caught:
            facts.read_facts(place)
        assert caught.value.why
        assert caught.value.cure


def test_replacing_a_text_returns_whether_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert files.replace_text(path, "one")
    assert not files.replace_text(path, "one")
    assert files.replace_text(path, "two", 0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_name_servers_that_guests_can_reach() -> None:
    text = """
# nameserver 192.0.2.1
nameserver 127.0.0.53
nameserver 192.0.2.53
nameserver fe80::1%eth0
nameserver 192.0.2.53
 nameserver 198.51.100.7 # second
nameserver nonsense
search example.org
"""
    assert facts.parse_resolvers(text) == ["192.0.2.53", "198.51.100.7"]


def test_the_servers_behind_the_stub_resolver_are_used(tmp_path: Path) -> None:
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("nameserver 127.0.0.53\n")
    assert facts.find_resolvers((stub, real)) == ["1.1.1.1", "9.9.9.9"]
    # At boot the network may be late: what was recorded is kept.
    assert facts.find_resolvers((stub, real), otherwise=["192.0.2.7"]) == ["192.0.2.7"]
    real.write_text("nameserver 192.0.2.53\n")
    assert facts.find_resolvers((stub, real)) == ["192.0.2.53"]


@pytest.mark.parametrize(("text", "on"), [("Y\n", True), ("1\n", True), ("N\n", False)])
def test_nested_virtualisation_is_read_from_the_module(tmp_path: Path, text: str, on: bool) -> None:
    assert not facts.find_nested(tmp_path)
    path = tmp_path / "kvm_amd" / "parameters" / "nested"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert facts.find_nested(tmp_path) is on


ROUTES: list[dict[str, Any]] = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
    {"dst": "0.0.0.0/1", "dev": "tun0"},
    {"dst": "192.0.2.0/24", "dev": "eth0"},
    {"dst": "172.31.240.0/20", "dev": "br-winlab"},
    {"type": "local", "dst": "172.31.240.1", "dev": "br-winlab", "table": "local"},
    {"type": "blackhole", "dst": "172.30.255.0/24"},
    {"dst": "fd00::/64", "dev": "eth0"},
]
LINKS: list[dict[str, Any]] = [
    {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "192.0.2.2", "prefixlen": 24}, {"family": "inet6"}]},
    {"ifname": "br-winlab", "addr_info": [{"family": "inet", "local": "172.31.240.1", "prefixlen": 20}]},
    {"ifname": "ifb0", "addr_info": []},
]


def test_used_networks_leave_out_our_own_and_default_routes() -> None:
    found = subnet.used_networks(ROUTES, LINKS, "br-winlab")
    assert [(str(item.network), item.device) for item in found] == [
        ("192.0.2.0/24", "eth0"),
        ("172.30.255.0/24", "blackhole"),
        ("192.0.2.0/24", "eth0"),
    ]


def used(*networks: str) -> list[Used]:
    return [Used(IPv4Network(text), "vpn0", f"route {text} dev vpn0 table main") for text in networks]


def test_the_first_free_candidate_is_chosen() -> None:
    assert subnet.choose(None, None, []) == "172.31.240.0/20"
    assert subnet.choose(None, None, used("172.16.0.0/12")) == "10.231.240.0/20"
    assert subnet.choose(None, None, used("172.31.250.0/24", "172.30.0.0/16")) == "172.29.240.0/20"


def test_one_asked_for_is_not_replaced_silently() -> None:
    assert subnet.choose("10.9.0.0/20", None, used("10.8.0.0/16")) == "10.9.0.0/20"
    with pytest.raises(ConflictError) as caught:
        subnet.choose("10.9.0.0/20", None, used("10.0.0.0/8"))
    assert "vpn0" in caught.value.what
    assert "route 10.0.0.0/8" in caught.value.why


def test_the_recorded_one_is_kept() -> None:
    assert subnet.choose(None, "10.9.0.0/20", used("10.9.0.0/16")) == "10.9.0.0/20"
    assert subnet.choose("10.9.0.0/20", "10.9.0.0/20", []) == "10.9.0.0/20"
    with pytest.raises(ConflictError) as caught:
        subnet.choose("10.8.0.0/20", "10.9.0.0/20", [])
    assert "teardown" in caught.value.cure


def test_if_nothing_is_free_the_conflicts_are_named() -> None:
    with pytest.raises(ConflictError) as caught:
        subnet.choose(None, None, used("172.16.0.0/12", "10.0.0.0/8", "192.168.0.0/16"))
    assert "192.168.240.0/20: route 192.168.0.0/16" in caught.value.why


@pytest.mark.parametrize("text", ["", "x", "10.0.0.1/20", "10.0.0.0/30", "10.0.0.0/8", "127.0.0.0/20", "fd00::/64"])
def test_unsuitable_external_subnets(text: str) -> None:
    with pytest.raises(UsageError):
        subnet.check_cidr(text)


@given(st.lists(st.sampled_from(subnet.CANDIDATES)))
def test_the_choice_never_collides(taken: list[str]) -> None:
    try:
        found = subnet.choose(None, None, used(*taken))
    except ConflictError:
        assert set(taken) == set(subnet.CANDIDATES)
    else:
        assert found not in taken


def test_the_record_survives_and_keeps_the_first_value(tmp_path: Path) -> None:
    path, device = tmp_path / "changes.yaml", tmp_path / "kvm"
    device.write_text("")
    device.chmod(0o600)
    record = Record(path)
    record.keep_mode(device)
    device.chmod(0o660)
    record.keep_mode(device)
    record.add("bridges", "br-a")
    record.add("bridges", "br-a")
    record.mark("pool")
    again = Record(path).changes
    assert again == record.changes
    assert (again.modes[str(device)].mode, again.bridges, again.pool) == (0o600, ["br-a"], True)
    record.remove()
    assert not path.exists()


def test_an_unusable_record_is_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "changes.yaml"
    path.write_text(HEADER + "bridges: 7\n")
    with pytest.raises(HostError):
        Record(path)
