"""The mark of a machine whose first boot is not complete, in its domain's metadata."""

from __future__ import annotations

import libvirt
from lxml import etree

from winlab.adapters.vm.connection import Connection, answering, explained
from winlab.adapters.vm.domains import Named, find, get, now_and_later
from winlab.design.plan import tags

KEY = "winlab-first-boot"  # the prefix of the mark's namespace


@answering()
def is_marked(conn: Connection, machine: Named) -> bool:
    """Whether the domain exists and winlab did not see its first boot end; False if an earlier version made it."""
    domain = find(conn, machine)
    if domain is None:
        return False
    return tags.in_first_boot(etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode()))


def unmark(conn: Connection, machine: Named) -> None:
    """Record that the domain's first boot is complete. Safe to repeat."""
    if not is_marked(conn, machine):
        return
    with explained(f"That '{machine.domain}' has booted can't be recorded."):
        domain = get(conn, machine)
        element, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, now_and_later(domain)  # a snapshot has what is now
        domain.setMetadata(element, None, KEY, tags.FIRST_BOOT, flags)
