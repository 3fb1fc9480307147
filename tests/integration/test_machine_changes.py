"""The changes of an existing machine, on real libvirt: sizes from the next start on, its tag at once.

The machine has no disk, and its CPU never runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import libvirt
import plans
import pytest
from lxml import etree

from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection
from winlab.design.plan import tags
from winlab.site import Site

PLAN = plans.make(plans.TCG, "1-0-1", lab="it-changes")
NODE = PLAN.nodes[0]
SECURE = libvirt.VIR_DOMAIN_XML_SECURE
DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<metadata>{tag}</metadata><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><graphics type='vnc' port='-1' passwd='secret'/></devices></domain>"""


@pytest.fixture
def conn(host: None) -> Iterator[Connection]:
    """libvirt, with the machine, which is paused from its start on."""
    with Site().hypervisors() as hosts:
        connection = hosts.on(NODE).conn
        domains.remove(connection, NODE)
        tag = etree.tostring(tags.element(PLAN, NODE), encoding="unicode")
        domain = connection.defineXML(DOMAIN.format(name=NODE.domain, uuid=NODE.uuid, tag=tag))
        try:
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
            yield connection
        finally:
            domains.remove(connection, NODE)


def test_sizes_change_at_the_next_start_and_nothing_else_does(conn: Connection) -> None:
    before = domains.get(conn, NODE).XMLDesc(SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    domains.resize(conn, NODE, 2, 96)
    assert domains.sizes(conn, NODE) == (2, 96)
    assert domains.sizes(conn, NODE, now=True) == (1, 64)
    after = domains.get(conn, NODE).XMLDesc(SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert "passwd='secret'" in after
    for old, new in (("65536", "98304"), ("<vcpu placement='static'>1<", "<vcpu placement='static'>2<")):
        assert old in before
        before = before.replace(old, new)
    assert after == before
    domains.remove(conn, NODE)


def test_a_tag_changes_now_and_for_later_starts(conn: Connection) -> None:
    other = tags.of(PLAN, NODE).model_copy(update={"plan": "0123456789abcdef"})
    assert domains.carries(conn, NODE, tags.of(PLAN, NODE))
    assert not domains.carries(conn, NODE, other)
    domains.set_tag(conn, NODE, other)
    assert domains.carries(conn, NODE, other)
    assert [machine.tag for machine in domains.machines(conn, PLAN.lab)] == [other]
    text = domains.get(conn, NODE).XMLDesc(0)
    assert text.count("<winlab:node ") == 1
