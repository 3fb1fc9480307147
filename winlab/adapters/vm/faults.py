"""What injected faults need of domains: their records in a domain's metadata, and its network card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libvirt
from lxml import etree

from winlab.adapters.vm.connection import Connection, answering
from winlab.adapters.vm.domains import Named, get
from winlab.adapters.vm.records import Records

RECORDS = Records("faults", "fault")


def records(conn: Connection, machine: Named) -> list[Any]:
    """The records in a domain's metadata, as written by anyone who may use libvirt."""
    return RECORDS.read(conn, machine)


def write_records(conn: Connection, machine: Named, lab: str, values: Sequence[Any]) -> None:
    """Keep these records in a domain's metadata, and no others."""
    RECORDS.write(conn, machine, lab, values)


@answering()
def card(conn: Connection, machine: Named) -> tuple[str, str]:
    """The MAC of a domain's first network card, and its port in OVN."""
    root = etree.fromstring(get(conn, machine).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode())
    mac = root.find("devices/interface/mac")
    port = root.find("devices/interface/virtualport/parameters")
    return ("" if mac is None else str(mac.get("address"))), ("" if port is None else str(port.get("interfaceid")))
