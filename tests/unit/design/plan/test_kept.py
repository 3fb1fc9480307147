"""A lab that keeps the identity of another one: the same inside, its own outside."""

from __future__ import annotations

from typing import Any

import plans
import pytest

from winlab.design import spec
from winlab.design.contract.call import Call
from winlab.design.plan import credentials, make, tags
from winlab.design.plan.changes import changes
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render import nodes
from winlab.design.render.linux import LinuxFiles
from winlab.design.render.templates import expand
from winlab.design.render.topology import topology
from winlab.errors import UsageError
from winlab.lab_folder import LabFolder
from winlab.operations import recorded
from winlab.operations.planning import Proposal

SOURCES = ["1-1-1", "3-2-1", "mixed"]
OUTSIDE = {"domain", "uuid", "port", "floating", "volumes"}  # of a node


def made(lab: str, source: str = "1-1-1", *given: str, **options: Any) -> Plan:
    wanted = spec.load(source, given)
    return make.make(wanted, lab, plans.KVM, plans.stock(wanted), **options)


@pytest.mark.parametrize("source", SOURCES)
def test_a_plan_that_keeps_nothing_is_unchanged(source: str) -> None:
    plan = made("lab", source)
    assert plan.kept is None
    assert plan.network.domain == "lab.winlab.internal"
    assert (made("lab", source, kept=None), made("lab", source, standing=[plan])) == (plan, plan)
    for node in plan.nodes:
        assert (plan.certified(node), plan.instance(node)) == (node.floating, node.uuid)
        assert "zone" not in tags.of(plan, node).attributes


@pytest.mark.parametrize("source", SOURCES)
def test_keeping_your_own_identity_changes_nothing(source: str) -> None:
    plan = made("lab", source)
    same = made("lab", source, kept=plan.as_kept())
    assert same.model_copy(update={"kept": None}) == plan


@pytest.mark.parametrize("source", SOURCES)
def test_the_inside_is_the_origin_s_and_the_outside_the_lab_s_own(source: str) -> None:
    origin, fresh = made("one", source), made("two", source)
    copy = made("two", source, kept=origin.as_kept())
    for node, old, new in zip(copy.nodes, origin.nodes, fresh.nodes, strict=True):
        assert node.model_dump(include=OUTSIDE) == new.model_dump(include=OUTSIDE)
        assert node.model_dump(exclude=OUTSIDE) == old.model_dump(exclude=OUTSIDE)
        for name in OUTSIDE:
            assert getattr(node, name) != getattr(old, name)
    own = {"domain": "two.winlab.internal", "gateway_mac": fresh.network.gateway_mac}
    assert copy.network.model_copy(update=own) == fresh.network
    assert (copy.network.domain, copy.network.gateway_mac) == ("one.winlab.internal", origin.network.gateway_mac)
    assert (copy.cluster.names, copy.cluster.endpoint) == (origin.cluster.names, origin.cluster.endpoint)
    assert copy.cluster.external == fresh.cluster.external
    assert copy.digest not in (origin.digest, fresh.digest)
    for builder, usual in zip(copy.builders, fresh.builders, strict=True):
        assert (builder.lab, builder.network, builder.nodes) == (usual.lab, usual.network, usual.nodes)


def joining(plan: Plan, node: LinuxNode, *, first: bool) -> Call[Any]:
    return plan.cluster.distribution.linux_call(nodes.cluster(plan), nodes.member(plan, node), first=first)


def test_guests_are_given_the_same_files() -> None:
    origin = made("one", "3-1-1", "linux_workers.count=1")
    copy = made("two", "3-1-1", "linux_workers.count=1", kept=origin.as_kept())
    secrets = credentials.generate(origin)
    for old, new in zip(origin.linux_nodes(), copy.linux_nodes(), strict=True):
        before, after = LinuxFiles(origin, old), LinuxFiles(copy, new)
        assert after.first_boot(secrets, expand) == before.first_boot(secrets, expand)
        assert after.prepare() == before.prepare()
        for first in (True, False):
            assert joining(copy, new, first=first) == joining(origin, old, first=first)
    was, now = topology(origin), topology(copy)
    assert (now.dns, now.dhcp_options) == (was.dns, was.dhcp_options)
    assert [port.addresses for port in now.ports[1:]] == [port.addresses for port in was.ports[1:]]
    assert {port.name for port in now.ports}.isdisjoint(port.name for port in was.ports)
    assert {nat.external for nat in now.nats}.isdisjoint(nat.external for nat in was.nats)


def test_a_copy_of_a_copy_keeps_the_same_identity() -> None:
    origin = made("one")
    copy = made("two", kept=origin.as_kept())
    assert copy.as_kept() == origin.as_kept()


def test_credentials_of_the_origin_fit() -> None:
    origin = made("one", "1-2-1")
    copy = made("two", "1-2-1", kept=origin.as_kept())
    held = LabFolder("one").ensure_credentials(origin)
    folder = LabFolder("two")
    folder.write(folder.path / "credentials.json", held.model_dump_json())
    assert folder.credentials_fit(copy)
    assert not folder.credentials_fit(made("two", "1-2-1"))
    assert folder.ensure_credentials(copy) == held
    grown = made("two", "1-3-1", kept=origin.as_kept())
    more = credentials.adapted(grown, held)
    assert {name: more.nodes[name] for name in held.nodes} == held.nodes
    hosts = dict(line.split(" ", 1) for line in folder.known_hosts.read_text().splitlines())
    assert list(hosts) == [f"{node.floating},{node.name}.one.winlab.internal" for node in copy.nodes]


def test_tags_have_the_name_that_the_node_is_verified_by() -> None:
    origin = made("one")
    copy = made("two", kept=origin.as_kept())
    for plan in (origin, copy):
        for node in plan.nodes:
            tag = tags.of(plan, node)
            assert tag.full_name == f"{node.name}.one.winlab.internal"
            element = f"<domain><uuid>{node.uuid}</uuid><metadata>{_text(plan, node.name)}</metadata></domain>"
            assert tags.read(element) == tag


def _text(plan: Plan, node: str) -> str:
    from lxml import etree

    return str(etree.tostring(tags.element(plan, plan.node(node)), encoding="unicode"))


def test_it_lasts_as_long_as_the_lab() -> None:
    """The next commands plan from the record: added nodes get the lab's own identity."""
    origin = made("one")
    copy = made("two", kept=origin.as_kept())
    assert Plan.model_validate_json(copy.model_dump_json()) == copy
    assert made("two", standing=[copy]) == copy
    grown = made("two", "1-2-1", standing=[copy])
    assert {row.kind for row in changes([copy], grown).every} == {"added"}
    assert grown.node("node-1") == copy.node("node-1")
    assert grown.node("node-2").mac == made("two", "1-2-1").node("node-2").mac


def test_it_is_recorded_with_the_plan() -> None:
    wanted = spec.load("1-1-1")
    at_hand = plans.stock(wanted)
    copy = make.make(wanted, "two", plans.KVM, at_hand, kept=made("one").as_kept())
    folder = LabFolder("two")
    recorded.write(folder, Proposal(wanted, copy, at_hand))
    (back,) = recorded.standing(folder)
    assert (back.kept, back.digest) == (copy.kept, copy.digest)


def test_another_inner_network_is_refused() -> None:
    with pytest.raises(UsageError, match=r"can't be 10\.78\.0\.0/24") as caught:
        made("two", "1-1-1", "network.cidr=10.78.0.0/24", kept=made("one").as_kept())
    assert "network.cidr=10.77.0.0/24" in caught.value.cure


def test_two_nodes_never_have_one_address() -> None:
    kept = made("one", "1-2-1").as_kept()
    (moved,) = [node.model_copy(update={"name": "node-3"}) for node in kept.nodes if node.name == "node-1"]
    odd = kept.model_copy(update={"nodes": (moved,)})
    with pytest.raises(UsageError, match="would have the same address"):
        made("two", "1-3-1", kept=odd)
