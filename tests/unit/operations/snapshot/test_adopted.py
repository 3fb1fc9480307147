"""A record from someone else becomes this account's: names are decided again, nothing leads to this host's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import saved
from pools import MemoryPool

from winlab import settings
from winlab.design import spec
from winlab.design.plan import addresses, tags
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.errors import UsageError
from winlab.operations.snapshot.adopted import NOWHERE, adopt
from winlab.snapshots import Drive, Id, Snapshot

FACTS = HostFacts(recorded=True, external_cidr="172.31.0.0/20", chassis="ours")
NEW = Id("other", "copy")


@pytest.fixture(scope="module")
def given() -> Snapshot:
    return saved.snapshot(MemoryPool())


@pytest.mark.parametrize("which", [NEW, saved.ID])
def test_what_winlab_decides_by_names_is_decided_again(given: Snapshot, which: Id) -> None:
    got = adopt(given, which, FACTS)
    assert (got.id, got.plan.lab, got.plan.host) == (which, which.lab, FACTS)
    assert (got.roots, got.kubectl, got.automatic) == ((), None, False)
    network = got.plan.network
    assert (network.external_cidr, network.external_gateway) == ("172.31.0.0/20", "172.31.0.1")
    assert network.external_switch == settings.EXTERNAL_SWITCH
    block = addresses.external_block(FACTS.external_cidr, which.lab, 3, None)
    assert list(got.plan.external_addresses) == block[:3]
    assert got.spec.network.floating_block == addresses.blocks(FACTS.external_cidr, block[:1])[0]
    for node in got.plan.nodes:
        assert node.domain == f"winlab-{which.lab}.{node.name}"
        assert node.uuid == addresses.make_uuid(which.lab, node.name)
        for drive in got.nodes[node.name].drives.values():
            assert drive.volume.startswith(f"{which}.{node.name}.")
    assert got.plan.as_kept() == given.plan.as_kept()
    assert Snapshot.model_validate_json(got.model_dump_json(by_alias=True)) == got


def test_paths_of_the_spec_lead_nowhere(given: Snapshot) -> None:
    wanted = spec.load("1-1-1", ["workers.media=/home/mine/own.iso"])
    pool = wanted.workers[0].model_copy(update={"files": Path("/.."), "scripts": (Path("/home/mine/script.ps1"),)})
    plan = given.plan
    cluster = plan.cluster.model_copy(update={"source": Path("/home/mine/kubernetes")})
    got = adopt(
        changed(given, spec=wanted.model_copy(update={"workers": (pool,)}), plan=with_plan(plan, kubernetes=cluster)),
        NEW,
        FACTS,
    )
    (workers,) = got.spec.workers
    assert workers.scripts == (NOWHERE / "script.ps1",)
    assert (workers.media, workers.files) == (NOWHERE / "own.iso", NOWHERE / "folder")
    assert got.plan.cluster.source is None


def test_it_is_on_the_first_hypervisor_of_this_site(given: Snapshot) -> None:
    there = {"hypervisor": "hypervisor-2"}
    pins = ["controllers.hypervisor=hypervisor-2", "workers.hypervisor=hypervisor-2", "linux_workers.apart=true"]
    plan = with_plan(
        given.plan,
        nodes=tuple(node.model_copy(update=there) for node in given.plan.nodes),
        hosts={"hypervisor-2": MachineFacts(accelerator="tcg", chassis="theirs")},
        placed={node.name: "it has the most free memory" for node in given.plan.nodes},
    )
    got = adopt(changed(given, plan=plan, spec=spec.load("1-1-1", pins)), NEW, FACTS)
    assert {node.hypervisor for node in got.plan.nodes} == {HYPERVISOR}
    assert (got.plan.hosts, got.plan.placed) == ({}, {})
    assert got.plan.hypervisors == {HYPERVISOR: FACTS.machine}
    groups = (got.spec.controllers, *got.spec.workers, got.spec.linux_workers)
    assert {(group.hypervisor, group.apart) for group in groups} == {(None, False)}
    assert got.plan.digest == adopt(given, NEW, FACTS).plan.digest
    assert Snapshot.model_validate_json(got.model_dump_json(by_alias=True)) == got


def changed(given: Snapshot, **update: Any) -> Snapshot:
    return given.model_copy(update=update)


def with_plan(plan: Plan, **update: Any) -> Plan:
    return plan.model_copy(update=update)


def with_network(given: Snapshot, **update: Any) -> Snapshot:
    return changed(given, plan=with_plan(given.plan, network=given.plan.network.model_copy(update=update)))


def with_node(given: Snapshot, **update: Any) -> Snapshot:
    first, *others = given.plan.nodes
    return changed(given, plan=with_plan(given.plan, nodes=(first.model_copy(update=update), *others)))


def with_volume(given: Snapshot, role: str, **update: Any) -> Snapshot:
    node: NodePlan = given.plan.nodes[0]
    volumes = tuple(one.model_copy(update=update) if one.role == role else one for one in node.volumes)
    return with_node(given, volumes=volumes)


def with_saved(given: Snapshot, **update: Any) -> Snapshot:
    name = given.plan.nodes[0].name
    return changed(given, nodes={**given.nodes, name: given.nodes[name].model_copy(update=update)})


def with_drive(given: Snapshot, target: str = "sda", **update: Any) -> Snapshot:
    name = given.plan.nodes[0].name
    drive = Drive(kind="disk", what=f"{name}.disk.qcow2", volume=f"lab@ready.{name}.disk.qcow2")
    return with_saved(given, drives={target: drive.model_copy(update=update)})


REFUSED: dict[str, Callable[[Snapshot], Snapshot]] = {
    "a lab that no lab is called": lambda given: changed(given, lab="base-x", plan=with_plan(given.plan, lab="base-x")),
    "a name with a path": lambda given: changed(given, name="../x"),
    "another lab's plan": lambda given: changed(given, lab="two"),
    "a golden image's plan": lambda given: changed(given, plan=with_plan(given.plan, golden="0123456789abcdef")),
    "no nodes": lambda given: changed(given, nodes={}, plan=with_plan(given.plan, nodes=())),
    "other nodes than its plan": lambda given: changed(given, nodes=dict(list(given.nodes.items())[1:])),
    "a node twice": lambda given: changed(given, plan=with_plan(given.plan, nodes=given.plan.nodes[:1] * 2)),
    "no credentials": lambda given: changed(given, credentials=given.credentials.model_copy(update={"nodes": {}})),
    "a kubeconfig that runs a program": lambda given: changed(
        given,
        kubeconfig="{clusters: [{cluster: {server: x}}], users: [{user: {exec: {command: /bin/sh}}}]}",
    ),
    "no network": lambda given: with_network(given, cidr="everything"),
    "no address": lambda given: with_network(given, gateway="gateway"),
    "no resolver": lambda given: with_network(given, resolvers=("-x",)),
    "the firewall's MAC of labs that may reach the host": lambda given: with_network(
        given, gateway_mac="52:54:01:00:00:00"
    ),
    "a zone of two lines": lambda given: with_network(given, domain="a\nb"),
    "a route to no network": lambda given: changed(given, routes={"all": "10.77.0.101"}),
    "a route to no address": lambda given: changed(given, routes={"10.244.1.0/24": "host"}),
    "a user that ssh takes for an option": lambda given: with_node(given, user="-oProxyCommand=x"),
    "an image of a strange name": lambda given: with_node(given, image="../x"),
    "no MAC": lambda given: with_node(given, mac="00:00:00:00:00:00"),
    "no node's address": lambda given: with_node(given, address="x"),
    "more than one line": lambda given: with_node(given, pool="a\nb"),
    "other memory": lambda given: with_saved(given, memory_mib=2),
    "no memory, though it was saved": lambda given: with_saved(given, split=None),
    "memory beyond its end": lambda given: with_saved(given, sample=1 << 20),
    "another node's volume": lambda given: with_volume(given, "disk", name="lab.node-1.disk.qcow2"),
    "a volume with a path": lambda given: with_volume(given, "disk", name="/dev/sda"),
    "a volume over a path": lambda given: with_volume(given, "disk", backing="/etc/shadow"),
    "a drive with another node's disk": lambda given: with_drive(
        given, what="node-1.disk.qcow2", volume="lab@ready.node-1.disk.qcow2"
    ),
    "a drive with a path": lambda given: with_drive(given, what="../x", volume="lab@ready.../x"),
    "a drive with another volume": lambda given: with_drive(given, volume="lab.node-1.disk.qcow2"),
    "a drive with a strange target": lambda given: with_drive(given, target="sda,x"),
    "a shared CD with a path": lambda given: with_drive(given, kind="shared", what="base-/../x.iso"),
    "a shared disk": lambda given: with_drive(given, kind="shared", what="base-windows.qcow2"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_winlab_does_not_write_is_refused(given: Snapshot, what: str) -> None:
    with pytest.raises(UsageError) as error:
        adopt(REFUSED[what](given), NEW, FACTS)
    assert error.value.cure


def test_the_tag_of_a_copy_is_that_of_its_plan(given: Snapshot) -> None:
    got = adopt(given, NEW, FACTS)
    assert [tags.of(got.plan, node).full_name for node in got.plan.nodes] == [
        tags.of(given.plan, node).full_name for node in given.plan.nodes
    ]
