"""What faults on purpose need of domains: their records in a domain's metadata, and its network card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import libvirt
from lxml import etree

from winlab.adapters.vm.connection import Connection, answering, explained
from winlab.adapters.vm.domains import Named, get
from winlab.design.plan import tags

XMLNS = f"{tags.NAMESPACE}faults:1"
KEY = "winlab-faults"  # the prefix of that namespace


@answering()
def records(conn: Connection, machine: Named) -> list[Any]:
    """The records in a domain's metadata, as written by anyone who may use libvirt."""
    try:
        text = get(conn, machine).metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, XMLNS, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_ERR_NO_DOMAIN):
            return []
        raise
    found = []
    for element in etree.fromstring(text.encode()).findall("{*}fault"):
        try:
            found.append(json.loads(element.text or ""))
        except ValueError:
            continue
    return found


def write_records(conn: Connection, machine: Named, lab: str, values: Sequence[Any]) -> None:
    """Keep these records in a domain's metadata, and no others; none: the element is removed."""
    text = None
    if values:
        # an element of winlab's names its lab, in every version
        top = etree.Element("faults", lab=lab)
        for value in values:
            etree.SubElement(top, "fault").text = json.dumps(value, sort_keys=True)
        text = etree.tostring(top, encoding="unicode")
    elif not records(conn, machine):
        return
    with explained(f"The faults of '{machine.domain}' can't be recorded."):
        get(conn, machine).setMetadata(
            libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, KEY, XMLNS, libvirt.VIR_DOMAIN_AFFECT_CONFIG
        )


@answering()
def card(conn: Connection, machine: Named) -> tuple[str, str]:
    """The MAC of a domain's first network card, and its port in OVN."""
    root = etree.fromstring(get(conn, machine).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode())
    mac = root.find("devices/interface/mac")
    port = root.find("devices/interface/virtualport/parameters")
    return ("" if mac is None else str(mac.get("address"))), ("" if port is None else str(port.get("interfaceid")))
