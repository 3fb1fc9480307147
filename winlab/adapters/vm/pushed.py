"""Programs that users pushed in place of a node's own, as recorded in its domain's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Named
from winlab.adapters.vm.records import Records

RECORDS = Records("pushed", "program")
SHOWN = 12  # digits of a digest


@dataclass(frozen=True)
class Pushed:
    """A program, the SHA-256 of the build that is in its place, and when that was pushed, as text."""

    program: str
    sha256: str
    at: str

    def __str__(self) -> str:
        return f"{self.program} is your own build ({self.sha256[:SHOWN]}...), pushed at {self.at}"


def read(conn: Connection, machine: Named) -> list[Pushed]:
    """What was pushed into a domain's guest and not restored."""
    names = {field.name for field in fields(Pushed)}
    return [
        Pushed(**row)
        for row in RECORDS.read(conn, machine)
        if isinstance(row, dict) and row.keys() == names and all(isinstance(value, str) for value in row.values())
    ]


def write(conn: Connection, machine: Named, lab: str, values: Sequence[Pushed]) -> None:
    """Record exactly these."""
    RECORDS.write(conn, machine, lab, [asdict(one) for one in values])
