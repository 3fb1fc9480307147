"""Machines beside the cluster, and labs without one, in a plan and in what follows from it."""

from __future__ import annotations

import json

import plans
import pytest

from winlab.design import spec as specs
from winlab.design.plan import required, tags
from winlab.design.plan.changes import changes
from winlab.design.plan.model import Plan
from winlab.design.render import folder, kubernetes, nodes
from winlab.design.render.topology import topology
from winlab.errors import NotFoundError, UsageError

OLD, NEW = "windows-2019", "windows-2022"
AGENT, BUILD = "{name: agent, os: debian-13, cluster: false}", "{name: build, os: windows-2022, cluster: false}"
BOTH = f"workers=[{{name: node, os: windows-2022}}, {AGENT}, {BUILD}]"


def beside(*more: str) -> Plan:
    return plans.make(plans.KVM, "1-1-1", BOTH, *more)


def alone(*more: str) -> Plan:
    """A lab without a cluster."""
    return plans.make(plans.KVM, "0-2-1", "workers.os=debian-13", *more)


def test_membership_is_a_property() -> None:
    plan = beside()
    assert [node.name for node in plan.members] == ["controller-1", "node-1"]
    assert [(node.name, node.role) for node in plan.beside] == [("agent-1", "machine"), ("build-1", "machine")]
    assert [tags.of(plan, node).is_member for node in plan.nodes] == [True, True, False, False]
    assert plan.cluster.made
    assert not plan.joins
    assert plan.pools() == ("node",)
    assert plan.labels(plan.node("node-1")) == {}  # the cluster has nodes of one pool


def test_the_spec_s_own_example_can_be_planned() -> None:
    wanted = specs.load("beside")
    assert [pool.cluster for pool in wanted.pools] == [True, False, False]


def test_a_lab_without_the_field_is_unchanged() -> None:
    one, other = plans.make(plans.KVM), plans.make(plans.KVM, "1-1-1", "workers.cluster=true")
    assert one.digest == other.digest
    assert plans.make(plans.KVM, "1-1-1", "workers.cluster=false").digest != one.digest


def test_the_cluster_knows_only_members() -> None:
    plan = beside()
    assert [one.name for one in nodes.parts(plan)] == ["controller-1", "node-1"]
    files = kubernetes.files(plan)
    assert any(path.startswith("node-1/scripts/") for path in files)
    assert not any(path.startswith(("agent-1/", "build-1/")) for path in files)


def test_a_windows_machine_beside_the_cluster_does_not_affect_it() -> None:
    old = f"{{name: build, os: {OLD}, cluster: false}}"
    plan = plans.make(plans.KVM, "1-1-1", f"workers=[{{name: node, os: {NEW}}}, {old}]")
    assert plan.cluster.versions == plans.make(plans.KVM, "1-1-1", f"workers.os={NEW}").cluster.versions
    classes = [one for one in nodes.objects(plan) if one["kind"] == "RuntimeClass"]
    assert [one["metadata"]["name"] for one in classes] == [NEW]


def test_machines_have_network_and_names() -> None:
    plan = beside("network.cni=l3")
    made = topology(plan)
    agent = plan.node("agent-1")
    assert made.dns["agent-1"] == made.dns["agent-1.lab.winlab.internal"] == agent.address
    assert [one.logical for one in made.nats if one.external == agent.floating] == [agent.address]
    ports = {port.name: port.security for port in made.ports}
    assert ports[agent.port] == f"{agent.mac} {agent.address}"  # it has no pods that could send
    assert ports[plan.node("node-1").port].endswith(" 10.244.0.0/16")


def test_a_machine_beside_the_cluster_gets_only_winlab_s_scripts() -> None:
    plan = plans.make(plans.KVM, "1-0-1", f"workers=[{{name: agent, os: debian-13, cluster: false}}, {BUILD}]")
    assert [node.name for node in plan.supplied] == ["controller-1", "build-1"]
    linux, windows = required.payloads(plan)
    assert (linux.os, bool(linux.programs)) == ("linux", True)
    assert (windows.os, windows.artifacts) == ("windows", ())
    assert all(getattr(artifact, "os", "linux") == "linux" for artifact in required.every(plan))


def test_machines_beside_the_cluster_have_their_own_golden_image() -> None:
    plan = beside()
    member, build = plan.builders
    assert (member.nodes[0].role, build.nodes[0].role) == ("worker", "machine")
    assert member.golden != build.golden


def test_a_lab_can_have_no_cluster() -> None:
    plan = alone()
    assert plan.kubernetes is None
    assert (plan.members, len(plan.beside), plan.supplied) == ((), 2, ())
    assert not plan.joins
    assert required.every(plan) == []
    assert required.payloads(plan) == []
    assert topology(plan).discarded == ()
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert json.loads(plan.model_dump_json())["cluster"] is None
    with pytest.raises(NotFoundError, match="'lab' has no cluster"):
        _ = plan.cluster


def test_its_files_can_be_rendered() -> None:
    files = folder.files(alone(), lambda *_: "")
    assert "node-1/domain.xml" in files
    assert not any("kubernetes" in path or path.startswith("cluster/") for path in files)


@pytest.mark.parametrize(
    ("source", "change", "says"),
    [
        ("0-1-1", "workers.cluster=true", "no cluster that the nodes of 'node' could join"),
        ("0-1-1", "linux_workers.count=1", "make them a pool"),
        ("0-1-1", "addons.metrics-server={}", "without controllers it has none"),
        ("0-0-1", "workers.os=debian-13", "would be empty"),
        ("0-1-1", "kubernetes.source=/", "no cluster that it could be built for"),
        ("1-1-1", "controllers.cluster=false", "there is no such field"),
        ("1-1-1", "linux_workers.cluster=false", "there is no such field"),
    ],
)
def test_conflicting_settings_are_refused(source: str, change: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        specs.load(source, [change])


def test_machines_beside_the_cluster_come_and_go_without_changing_it() -> None:
    one, two = plans.make(plans.KVM, "1-1-1", BOTH), plans.make(plans.KVM, "1-1-1", BOTH, "workers.agent.count=2")
    more, less = changes([one], two), changes([two], one)
    assert [node.name for node in more.added] == ["agent-2"]
    assert [node.name for node in less.removed] == ["agent-2"]
    assert [row.why for row in less.every] == [""]
    assert not more.refused + less.refused


def test_an_existing_machine_can_t_change_its_membership() -> None:
    one = plans.make(plans.KVM, "1-1-1", "workers.os=debian-13")
    other = plans.make(plans.KVM, "1-1-1", "workers.os=debian-13", "workers.cluster=false")
    (row,) = [row for row in changes([one], other).refused if "role" in row.what]
    assert (row.what, row.before, row.after) == ("node node-1: role", "worker", "machine")


def test_a_lab_can_t_lose_or_gain_its_cluster() -> None:
    one = plans.make(plans.KVM, "1-2-1", "workers.os=debian-13", "workers.cluster=false")
    for old, new in ((one, alone()), (alone(), one)):
        assert "controllers.count" in [row.what for row in changes([old], new).refused]
