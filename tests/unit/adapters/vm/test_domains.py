"""Which domain is which machine, in libvirt's own mock of a hypervisor: by the UUID, whatever the name and the tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import libvirt
import plans
import pytest
import sites
from lxml import etree

from winlab.adapters.vm import definitions, domains, first_boot, power
from winlab.adapters.vm.connection import Connection, connected
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.errors import ConflictError, NotFoundError
from winlab.operations import making

OTHER_UUID = "11111111-2222-4333-8444-555555555555"
# Earlier versions joined lab and node by a hyphen: both are then called winlab-ci-win-node-1
CI = plans.make(plans.KVM, "1-1-1", "workers.name=win-node", "workers.os=debian-13", lab="ci")
CI_WIN = plans.make(plans.KVM, "1-1-1", "workers.os=debian-13", lab="ci-win")


def xml(plan: Plan, node: NodePlan, *, name: str = "", uuid: str = "", tagged: bool = True) -> str:
    tag = etree.tostring(tags.element(plan, node), encoding="unicode") if tagged else ""
    return (
        f"<domain type='test'><name>{name or node.domain}</name><uuid>{uuid or node.uuid}</uuid><memory>1024</memory>"
        f"<metadata>{tag}</metadata><os><type>hvm</type></os></domain>"
    )


def old_name(plan: Plan, node: NodePlan) -> str:
    return f"winlab-{plan.lab}-{node.name}"


@pytest.fixture
def conn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(libvirt.virDomain, "undefineFlags", lambda domain, _flags: domain.undefine())  # it has none
    with connected("test:///default") as made:
        yield made
        for domain in made.listAllDomains():
            if domain.name() != "test":
                if domain.isActive():
                    domain.destroy()
                if domain.isPersistent():
                    domain.undefine()


def names(conn: Connection) -> set[str]:
    return {domain.name() for domain in conn.listAllDomains()} - {"test"}


def test_two_machines_never_have_one_name() -> None:
    """N2: they had, and 'node remove' of the one lab removed the other's machine."""
    ours, theirs = CI_WIN.node("node-1"), CI.node("win-node-1")
    assert old_name(CI_WIN, ours) == old_name(CI, theirs)
    assert ours.domain == "winlab-ci-win.node-1"
    assert theirs.domain == "winlab-ci.win-node-1"


def test_a_lab_of_an_earlier_version_keeps_working(conn: Connection) -> None:
    """Its machines have their old names, and the digest of its plan is the same as before."""
    node = CI.node("win-node-1")
    conn.defineXML(xml(CI, node, name=old_name(CI, node)))
    assert domains.name_of(conn, node) == old_name(CI, node)
    assert domains.state(conn, node) == "off"
    assert domains.tag_of(conn, node) == tags.of(CI, node)
    (found,) = domains.machines(conn, "ci")
    assert (found.domain, found.uuid) == (old_name(CI, node), node.uuid)
    power.start(conn, node)
    assert domains.is_running(conn, found)
    recorded = CI.model_copy(
        update={"nodes": tuple(one.model_copy(update={"domain": old_name(CI, one)}) for one in CI.nodes)}
    )
    assert recorded.digest == CI.digest
    assert domains.remove(conn, recorded.node("win-node-1"))
    assert names(conn) == set()


def test_a_machine_of_another_lab_is_never_touched_by_its_name(conn: Connection) -> None:
    """A lab of an earlier version was made while the other one stood: its record has the other machine's name."""
    theirs, ours = CI.node("win-node-1"), CI_WIN.node("node-1")
    ours = cast(NodePlan, ours.model_copy(update={"domain": old_name(CI_WIN, ours)}))
    conn.defineXML(xml(CI, theirs, name=old_name(CI, theirs))).create()
    assert domains.find(conn, ours) is None
    assert domains.state(conn, ours) == "gone"
    assert not domains.remove(conn, ours)
    assert definitions.persistent(conn, ours) is None
    with pytest.raises(NotFoundError):
        power.cut_power(conn, ours)
    with pytest.raises(ConflictError, match="is 'win-node-1' of the lab 'ci'"):
        domains.tag_of(conn, ours)
    plan = CI_WIN.model_copy(update={"nodes": (ours,)})
    with pytest.raises(ConflictError, match="of the lab 'ci'"):
        making.refuse_taken_names([plan], Hypervisors((sites.hypervisor(conn),)))
    assert domains.state(conn, theirs) == "running"


@pytest.mark.parametrize("uuid", ["", OTHER_UUID])
def test_a_domain_of_the_user_with_a_machine_s_name_or_uuid_is_named(conn: Connection, uuid: str) -> None:
    node = CI.nodes[0]
    conn.defineXML(xml(CI, node, uuid=uuid, tagged=False))
    with pytest.raises(ConflictError, match=r"'winlab-ci\.controller-1' that winlab did not make"):
        domains.tag_of(conn, node)


def test_a_copy_that_the_user_made_is_not_the_lab_s(conn: Connection) -> None:
    """N5: virt-clone copies the tag. 'stop' and 'fault' acted on the copy, and destroy removed it."""
    node = CI.nodes[0]
    conn.defineXML(xml(CI, node, name="a-copy", uuid=OTHER_UUID)).create()
    assert domains.machines(conn) == []
    assert domains.copies(conn, "ci") == ["a-copy"]
    assert domains.copies(conn, "ci-win") == []
    assert not domains.remove(conn, node)
    conn.defineXML(xml(CI, node))
    assert [one.domain for one in domains.machines(conn, "ci")] == [node.domain]
    assert domains.remove(conn, node)
    assert names(conn) == {"a-copy"}


def test_a_machine_that_the_user_renamed_is_still_the_lab_s(conn: Connection) -> None:
    """create made its disk again, under the running machine."""
    node = CI.nodes[0]
    conn.defineXML(tags.new(xml(CI, node, name="mine"), 0)).create()
    assert domains.find(conn, node) is not None
    assert first_boot.is_marked(conn, node)
    domains.define(conn, node, xml(CI, node))
    power.start(conn, node)
    assert names(conn) == {"mine"}


def test_transient_machines_are_removed_in_one_go(conn: Connection) -> None:
    """libvirt forgets such a domain when it stops: 'no domain with matching uuid', once for each machine and run."""
    for node in CI.nodes:
        conn.createXML(xml(CI, node), 0)
    machines = domains.machines(conn, "ci")
    assert len(machines) == 2
    assert [domains.remove(conn, machine) for machine in machines] == [True, True]
    assert names(conn) == set()


def test_a_machine_that_is_removed_meanwhile_is_not_a_failure(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = CI.nodes[0]
    conn.defineXML(xml(CI, node)).create()
    real = libvirt.virDomain.destroy

    def undefined(domain: libvirt.virDomain) -> None:
        real(domain)
        domain.undefine()

    monkeypatch.setattr(libvirt.virDomain, "destroy", undefined)
    assert domains.remove(conn, node)
    assert names(conn) == set()
