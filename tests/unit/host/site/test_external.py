"""The external network of a site of several hosts: addresses, the program's text, the firewall's rules, the rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import plans
import pytest

from winlab.adapters.overlay import registry, rows
from winlab.adapters.registered import PREFIX, Registered
from winlab.design.plan.addresses import host_addresses
from winlab.design.plan.facts import HostFacts, MachineFacts
from winlab.design.plan.model import Plan
from winlab.design.render import gateways
from winlab.design.render.topology import topology
from winlab.errors import ConflictError, HostError
from winlab.host import external_program as program
from winlab.host import firewall, subnet
from winlab.host.site import external

OTHERS = ("chassis-2", "chassis-3")


def spread(lab: str = "lab") -> Plan:
    """A lab with nodes on two hypervisors."""
    plan = plans.make(plans.KVM, "1-1-1", lab=lab)
    moved = plan.nodes[1].model_copy(update={"hypervisor": "hypervisor-2"})
    return plan.model_copy(update={"nodes": (plan.nodes[0], moved)})


def test_hosts_have_addresses_that_labs_never_get() -> None:
    every = host_addresses("10.9.0.0/24")
    assert (every[0], every[13], every[14], every[-1]) == ("10.9.0.2", "10.9.0.15", "10.9.0.240", "10.9.0.254")


def test_a_host_keeps_its_address_and_gets_that_of_one_that_is_gone_only_if_all_are_taken() -> None:
    known = HostFacts(external_cidr="10.9.0.0/24")
    first = external.assigned(known, "c2", [])
    known = known.model_copy(update={"external_addresses": first})
    assert external.assigned(known, "c2", []) == first
    assert external.assigned(known, "c3", [])["c3"] == "10.9.0.3"
    assert external.assigned(known, "c3", [], "10.9.0.9")["c3"] == "10.9.0.9"
    assert external.assigned(known, "c3", [], "10.9.0.2")["c3"] == "10.9.0.3"  # another host's
    assert external.assigned(known, "c3", [], "10.9.0.77")["c3"] == "10.9.0.3"  # a lab's
    full = {f"c{i}": address for i, address in enumerate(host_addresses(known.external_cidr))}
    known = known.model_copy(update={"external_addresses": full})
    assert external.assigned(known, "new", full.keys() - {"c5"})["new"] == full["c5"]
    with pytest.raises(HostError, match="no address for a further host") as caught:
        external.assigned(known, "new", full.keys())
    assert caught.value.cure


def test_a_host_on_which_the_subnet_is_in_use_can_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [{"dst": "172.31.0.0/16", "dev": "eth0"}]
    monkeypatch.setattr(subnet, "used_here", lambda bridge: subnet.used_networks(routes, [], bridge))
    with pytest.raises(ConflictError, match="in use on this host's interface 'eth0'"):
        external.check(HostFacts())
    external.check(HostFacts(external_cidr="10.9.0.0/20"))


def test_the_first_host_has_no_flows_and_others_answer_for_its_address() -> None:
    assert "@" not in program.text("172.31.240.1/20").replace('"$@"', "")
    assert "priority" not in program.text("172.31.240.1/20").partition("FLOWS'")[2].partition("\nFLOWS")[0]
    flows = program.flows_for("172.31.240.1", "02:57:00:00:00:01", "02:57:00:00:00:02")
    answer, to_first, out = flows.splitlines()
    assert "load:0x025700000001->NXM_NX_ARP_SHA[]" in answer
    assert "load:0xac1ff001->NXM_OF_ARP_SPA[]" in answer
    assert to_first.endswith("priority=200,ip,dl_dst=02:57:00:00:00:01,nw_dst=172.31.240.1 actions=NORMAL")
    assert out.endswith("priority=100,ip,dl_dst=02:57:00:00:00:01 actions=mod_dl_dst:02:57:00:00:00:02,NORMAL")
    assert flows in program.text("172.31.240.2/20", flows)


def test_only_hosts_of_a_site_of_several_keep_tunnels_to_themselves() -> None:
    single, several = firewall.ruleset("10.9.0.0/20", "system"), firewall.ruleset("10.9.0.0/20", "system", (), 1442)
    added = [line.strip() for line in several.splitlines() if line not in single.splitlines()]
    assert [line.partition(" counter")[0] for line in added[:2]] == [
        "udp dport 6081", 'iifname "br-winlab" udp dport 6081',
    ]  # fmt: skip
    assert [line.split()[0] for line in added[2:]] == ["iifname", "oifname"]  # each side says what it takes
    assert all("set 1402 " in line for line in added[2:])
    before, _, _ = several.partition("labs whose network.reach is all")
    assert "udp dport 6081" in before  # also for labs that may reach the host


def test_at_a_site_of_one_host_the_rows_are_those_of_the_topology() -> None:
    top = topology(plans.make(plans.KVM, "1-1-1"))
    assert gateways.gateways(top, ()) == (top.chassis,)
    assert gateways.policies(top, ()) == ()


def test_labs_of_the_first_hypervisor_alone_keep_their_gateway() -> None:
    assert gateways.gateways(topology(plans.make(plans.KVM, "1-1-1")), OTHERS) == ("chassis-1",)


def test_two_hypervisors_have_one_gateway_and_three_have_three() -> None:
    top = topology(spread())
    assert gateways.gateways(top, OTHERS[:1]) == ("chassis-1",)
    assert sorted(gateways.gateways(top, OTHERS)) == ["chassis-1", *OTHERS]


def test_gateways_are_spread_and_a_further_hypervisor_moves_few() -> None:
    tops = [topology(spread(f"lab-{i}")) for i in range(60)]
    preferred = [gateways.gateways(top, OTHERS)[0] for top in tops]
    assert all(preferred.count(name) > 9 for name in ("chassis-1", *OTHERS))
    after = [gateways.gateways(top, (*OTHERS, "chassis-4"))[0] for top in tops]
    assert {new for old, new in zip(preferred, after, strict=True) if old != new} == {"chassis-4"}


def test_routers_let_other_hosts_in() -> None:
    inside, outside = gateways.policies(topology(spread()), OTHERS)
    assert inside.match.endswith("ip4.dst == {172.31.240.0/28, 172.31.255.240/28}")
    assert outside.match.endswith("ip4.src == {172.31.240.0/28, 172.31.255.240/28}")
    assert {inside.action, outside.action} == {"allow"}


def test_a_preferred_gateway_has_the_highest_priority() -> None:
    top = topology(spread())
    (router,) = [row for row in rows.of(top, OTHERS).roots if row.table == "Logical_Router"]
    inside, outside = router.columns["ports"]
    assert inside.columns["gateway_chassis"] == []
    found = {one.columns["chassis_name"]: one.columns["priority"] for one in outside.columns["gateway_chassis"]}
    assert sorted(found, key=lambda name: -found[name]) == list(gateways.gateways(top, OTHERS))
    assert sorted(found.values()) == [1, 2, 3]


def test_gateways_are_recorded_hypervisors() -> None:
    def record(chassis: str) -> str:
        return Registered(uri="qemu+ssh://h/system", facts=MachineFacts(chassis=chassis)).model_dump_json()

    ids = {f"{PREFIX}a": record("c3"), f"{PREFIX}b": record("c2"), f"{PREFIX}c": "{", f"{PREFIX}d": record("")}
    api: Any = SimpleNamespace(tables={"NB_Global": SimpleNamespace(rows={0: SimpleNamespace(external_ids=ids)})})
    assert registry.chassis(api) == ["c2", "c3"]
