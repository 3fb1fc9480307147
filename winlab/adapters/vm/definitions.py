"""The definitions of domains as libvirt's XML: the one for the next start, and the one that runs now."""

from __future__ import annotations

import libvirt

from winlab.adapters.vm.connection import answering, explained
from winlab.adapters.vm.domains import find


@answering()
def persistent(conn: libvirt.virConnect, name: str) -> str | None:
    """The XML for the domain's next start; None if there is no such domain."""
    domain = find(conn, name)
    return None if domain is None else str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


@answering()
def running(conn: libvirt.virConnect, name: str) -> str | None:
    """The XML of the running domain; None if it does not run."""
    domain = find(conn, name)
    return None if domain is None or not domain.isActive() else str(domain.XMLDesc(0))


def change(conn: libvirt.virConnect, name: str, xml: str) -> None:
    """Redefine a domain for its next start; a running one does not change.

    The password of its screen is kept: libvirt shows it only when asked.
    """
    with explained(f"The domain '{name}' can't be changed."):
        conn.defineXML(xml)


@answering()
def with_secrets(conn: libvirt.virConnect, name: str) -> str | None:
    """As :func:`persistent`, with the password of the domain's screen. Never to be printed or logged."""
    domain = find(conn, name)
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return None if domain is None else str(domain.XMLDesc(flags))
