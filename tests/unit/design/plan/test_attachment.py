"""How a lab and the external cluster that it joins reach each other: what the plan and the rows have for it."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import plans
import pytest

from winlab.adapters.overlay import rows
from winlab.design import spec
from winlab.design.plan import addresses, attachment, changes
from winlab.design.plan import make as making
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.design.plan.model import Plan
from winlab.design.render.topology import topology
from winlab.errors import UsageError

CLUSTER = ForeignCluster(
    server="https://172.18.0.2:6443", advertised="https://172.18.0.2:6443", ca="", version="v1.36.1",
    pod_cidr="10.244.0.0/16", service_cidr="10.96.0.0/16", dns="10.96.0.10", domain="cluster.local", cni=None,
    cni_note="kindnet", nodes=("cp",), addresses=("172.18.0.2",), on_link=True,
    bridge=LocalBridge("br-0123456789ab", "172.18.0.0/16", "172.18.0.1"),
)  # fmt: skip


def made(*settings: str, cluster: ForeignCluster | None = CLUSTER, source: str = "1-1-1", lab: str = "lab") -> Plan:
    wanted = spec.load(source, ["workers.os=windows-2022", *settings], environment={})
    return making.make(wanted, lab, plans.KVM, plans.stock(wanted), cluster)


ATTACHED, ROUTED = "network.attachment=attached", "network.attachment=routed"


def test_an_attached_lab_has_addresses_of_the_cluster_s_network() -> None:
    plan = made(ATTACHED)
    window = addresses.window("172.18.0.0/16", "lab")
    assert window.prefixlen == 24
    assert window.subnet_of(ipaddress.IPv4Network("172.18.128.0/17"))
    assert plan.network.cidr == "172.18.0.0/16"
    assert (plan.network.gateway, plan.nodes[0].address) == (str(window[254]), str(window[101]))
    assert plan.cluster.profile == "host-gw"
    assert plan.network.attachment is not None
    assert plan.network.attachment.networks == ("172.18.0.0/16", "10.244.0.0/16")


@pytest.mark.parametrize(("in_agents", "profile"), [(True, "host-gw"), (False, "elsewhere")])
def test_attached_linux_nodes_get_routes_where_the_cluster_s_agents_alone_have_flannel(
    in_agents: bool, profile: str
) -> None:
    linux = made(ATTACHED, "workers.os=debian-13", cluster=replace(CLUSTER, in_agents=in_agents))
    assert linux.cluster.profile == profile


@pytest.mark.parametrize(("cidr", "gateway"), [("192.168.49.0/24", ".254"), ("192.168.49.0/25", ".126")])
def test_a_small_network_is_shared_as_a_whole(cidr: str, gateway: str) -> None:
    bridge = LocalBridge("virbr1", cidr, "192.168.49.1")
    plan = made(ATTACHED, cluster=replace(CLUSTER, bridge=bridge))
    assert plan.network.gateway == f"192.168.49{gateway}"
    assert plan.nodes[0].address == "192.168.49.101"


def test_other_labs_take_other_addresses() -> None:
    assert len({str(addresses.window("172.18.0.0/16", f"lab-{number}")) for number in range(20)}) > 10


@pytest.mark.parametrize(
    ("cluster", "settings", "says"),
    [
        (None, (ATTACHED,), "joins none"),
        (None, (ROUTED,), "joins none"),
        (replace(CLUSTER, bridge=None), (ATTACHED,), "No bridge of this host"),
        (replace(CLUSTER, bridge=LocalBridge("b", "10.0.0.0/8", "10.0.0.1")), (ATTACHED,), "its network is"),
        (
            replace(CLUSTER, bridge=LocalBridge("b", "192.168.49.0/25", "192.168.49.1")),
            (ATTACHED, "workers.count=26"),
            "too small",
        ),
    ],
)
def test_what_is_refused(cluster: ForeignCluster | None, settings: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(*settings, cluster=cluster)
    assert says in f"{caught.value.what} {caught.value.why}"
    assert caught.value.cure


def test_attached_nodes_are_where_the_bridge_is() -> None:
    plan = made(ATTACHED)
    away = [node.model_copy(update={"hypervisor": "hypervisor-2"}) for node in plan.nodes]
    wanted = spec.load("1-1-1", [ATTACHED], environment={})
    with pytest.raises(UsageError, match="can't be attached"):
        attachment.decide(wanted, CLUSTER, away)


def test_a_routed_lab_is_translated_for_all_but_the_cluster() -> None:
    plan = made(ROUTED, "network.cni=l3")
    top = topology(plan)
    assert top.untranslated == ("winlab.lab", ("172.18.0.2/32", "10.244.0.0/16"))
    (router,) = [row for row in rows.of(top).roots if row.table == "Logical_Router"]
    for nat in router.columns["nat"]:
        (exempted,) = nat.columns["exempted_ext_ips"]
        assert exempted.columns["addresses"] == ["172.18.0.2/32", "10.244.0.0/16"]
    assert plan.network.cidr == "10.77.0.0/24"
    chosen = made(ROUTED, "network.routed=[192.0.2.0/24]", "network.cni=l3")
    assert topology(chosen).untranslated == ("winlab.lab", ("192.0.2.0/24",))


def test_an_attached_lab_s_switch_is_joined_to_the_bridge_and_lets_out_what_is_for_the_cluster() -> None:
    top = topology(made(ATTACHED))
    (port,) = [port for port in top.ports if port.type == "localnet"]
    assert (port.addresses, dict(port.options)) == ("unknown", {"network_name": "winlab-br-0123456789ab"})
    out = f'outport == "{port.name}"'
    assert [(one.match, one.action) for one in top.acls] == [
        (f"{out} && ip4 && ip4.dst != {{172.18.0.0/16, 10.244.0.0/16}}", "drop"),
        (f"{out} && ip4.dst == 172.18.0.1", "drop"),
        (f"{out} && ip6", "drop"),
    ]
    assert topology(made(ATTACHED, "network.reach=all")).acls == ()


def test_other_labs_have_nothing_of_it() -> None:
    plan = made("network.cni=l3")
    top = topology(plan)
    assert (top.untranslated, top.acls) == (None, ())
    assert "attachment" not in plan.network.lasting()
    assert "attachment" not in plan.model_dump()["network"]
    (switch,) = [row for row in rows.of(top).roots if row.table == "Logical_Switch"]
    assert "acls" not in switch.columns


def test_more_nodes_of_the_cluster_do_not_make_it_another_lab() -> None:
    one, other = made(ROUTED, "network.cni=l3"), made(ROUTED, "network.routed=[192.0.2.0/24]", "network.cni=l3")
    assert one.digest == other.digest != made("network.cni=l3").digest
    assert changes.changes([one], other).refused == ()


def test_another_attachment_is_another_lab() -> None:
    (change,) = changes.changes([made("network.cni=l3")], made(ROUTED, "network.cni=l3")).refused
    assert (change.what, change.before, change.after) == ("network.attachment", "nat", "routed")


def test_networks_count_only_for_a_routed_lab() -> None:
    with pytest.raises(UsageError, match="counts only with"):
        made("network.routed=[192.0.2.0/24]", ATTACHED)
