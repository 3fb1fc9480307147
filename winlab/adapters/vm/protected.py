"""The protection of a lab, as recorded in the metadata of its domains, where every user sees it."""

from __future__ import annotations

from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Named
from winlab.adapters.vm.records import Records

RECORDS = Records("protected", "by")


def read(conn: Connection, machine: Named) -> str | None:
    """The user who protected the domain's lab; empty if the record does not say. None: it is not protected."""
    found = RECORDS.read(conn, machine)
    return None if not found else found[0] if isinstance(found[0], str) else ""


def write(conn: Connection, machine: Named, lab: str, user: str | None) -> None:
    """Record who protected the domain's lab; None: no one."""
    RECORDS.write(conn, machine, lab, [] if user is None else [user])
