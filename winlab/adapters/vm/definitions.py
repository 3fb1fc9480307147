"""The definitions of domains as libvirt's XML: the one for the next start, and the one that runs now."""

from __future__ import annotations

import libvirt

from winlab.adapters.vm.connection import answering, explained
from winlab.adapters.vm.domains import Named, find


@answering()
def persistent(conn: libvirt.virConnect, machine: Named) -> str | None:
    """The XML for the domain's next start; None if there is no such domain."""
    domain = find(conn, machine)
    return None if domain is None else str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


@answering()
def running(conn: libvirt.virConnect, machine: Named) -> str | None:
    """The XML of the running domain; None if it does not run."""
    domain = find(conn, machine)
    return None if domain is None or not domain.isActive() else str(domain.XMLDesc(0))


def change(conn: libvirt.virConnect, machine: Named, xml: str) -> None:
    """Redefine a domain for its next start; a running one does not change.

    The password of its screen is kept: libvirt shows it only when asked.
    """
    with explained(f"The domain '{machine.domain}' can't be changed."):
        conn.defineXML(xml)


@answering()
def with_secrets(conn: libvirt.virConnect, machine: Named) -> str | None:
    """As :func:`persistent`, with the password of the domain's screen. Never to be printed or logged."""
    domain = find(conn, machine)
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return None if domain is None else str(domain.XMLDesc(flags))
