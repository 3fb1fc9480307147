"""Injected faults: one file per kind. Pure; winlab/operations/faults.py does them, docs/faults.md explains them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from winlab.design.fault.bandwidth import Bandwidth
from winlab.design.fault.base import UNFINISHED, Fault
from winlab.design.fault.clock import Clock
from winlab.design.fault.delay import Delay
from winlab.design.fault.disk import Disk
from winlab.design.fault.freeze import Freeze
from winlab.design.fault.kill import Kill
from winlab.design.fault.loss import Loss
from winlab.design.fault.partition import Partition
from winlab.errors import UsageError
from winlab.near import did_you_mean

KINDS: dict[str, type[Fault]] = {
    one.kind: one for one in (Loss, Delay, Partition, Bandwidth, Clock, Kill, Freeze, Disk)
}

__all__ = ["KINDS", "Fault", "make", "read"]


def make(kind: str, nodes: Sequence[str], **settings: object) -> Fault:
    """A fault, from what a user wrote.

    :raises UsageError: there is no such kind, or it takes other nodes or settings.
    """
    if kind not in KINDS:
        raise UsageError(
            f"There is no fault '{kind}'.", cure=f"{did_you_mean(kind, KINDS)}Choose one of: {', '.join(KINDS)}."
        )
    which = KINDS[kind]
    if not 1 <= len(nodes) <= 1 + which.pairs:
        raise UsageError(
            f"A fault '{kind}' takes {'one node or two' if which.pairs else 'one node'}, not {len(nodes)}.",
            cure="" if which.pairs else "Add one fault for each node.",
        )
    if len(set(nodes)) < len(nodes):
        raise UsageError(f"'{nodes[0]}' can't be both ends of a fault.", cure="Name another node, or only one.")
    try:
        return which(nodes=tuple(sorted(nodes)), **settings)
    except ValidationError as error:
        rows = error.errors(include_url=False, include_input=False)
        why = "\n".join(": ".join([*map(str, row["loc"]), _plain(row["msg"])]) for row in rows)
        raise UsageError(f"The fault '{kind}' can't have these settings.", why=why) from error


def read(record: Any) -> Fault | None:
    """A fault from its record; None if it is none, or of another version of winlab."""
    if not isinstance(record, dict):
        return None
    rest = {str(name): value for name, value in record.items()}
    kind, nodes, unfinished = rest.pop("kind", None), rest.pop("nodes", None), rest.pop(UNFINISHED, False)
    if not isinstance(kind, str) or not isinstance(nodes, list) or not all(isinstance(one, str) for one in nodes):
        return None
    try:
        made = make(kind, nodes, **rest)
    except UsageError:
        return None
    return made.begun() if unfinished else made


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
