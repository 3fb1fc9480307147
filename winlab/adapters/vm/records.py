"""Records of winlab's in domains' metadata: values as JSON, one element each. They disappear with the domain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from winlab.adapters.vm.connection import Connection, answering, explained
from winlab.adapters.vm.domains import Named, get, now_and_later
from winlab.design.plan import tags


@dataclass(frozen=True)
class Records:
    """Records of one kind.

    :param kind: the name of their element in the metadata, and part of its namespace.
    :param each: the name of the element of one record.
    """

    kind: str
    each: str

    @property
    def _namespace(self) -> str:
        return f"{tags.NAMESPACE}{self.kind}:1"

    @answering()
    def read(self, conn: Connection, machine: Named) -> list[Any]:
        """The records in a domain's metadata, as written by anyone who may use libvirt."""
        element, config = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
        try:
            text = get(conn, machine).metadata(element, self._namespace, config)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_ERR_NO_DOMAIN):
                return []
            raise
        found = []
        for one in etree.fromstring(text.encode()).findall(f"{{*}}{self.each}"):
            try:
                found.append(json.loads(one.text or ""))
            except ValueError:
                continue
        return found

    def write(self, conn: Connection, machine: Named, lab: str, values: Sequence[Any]) -> None:
        """Keep these records in a domain's metadata, and no others; none: the element is removed."""
        text = None
        if values:
            # an element of winlab's names its lab, in every version
            top = etree.Element(self.kind, lab=lab)
            for value in values:
                etree.SubElement(top, self.each).text = json.dumps(value, sort_keys=True)
            text = etree.tostring(top, encoding="unicode")
        elif not self.read(conn, machine):
            return
        with explained(f"The {self.kind} of '{machine.domain}' can't be recorded."):
            domain = get(conn, machine)
            element, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, now_and_later(domain)  # a snapshot has what is now
            domain.setMetadata(element, text, f"winlab-{self.kind}", self._namespace, flags)
