"""What a spec says about the hypervisors that nodes are on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from winlab.design.spec.fields import option

MOST = 50  # hypervisors that a lab uses


class Group(Protocol):
    """The controllers, or a pool."""

    @property
    def count(self) -> int:
        """How many nodes it has."""

    @property
    def hypervisor(self) -> str | None:
        """The hypervisor that all of them are on."""

    @property
    def apart(self) -> bool:
        """Whether each is on a different hypervisor."""


def pinned() -> Any:
    """The field of a group that names its hypervisor."""
    return option(
        None,
        "The hypervisor that all of them are on, by its name in 'winlab hypervisor list'",
        otherwise="chosen by what the hypervisors have free (docs/placement.md)",
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        example="hypervisor-2",
    )


def apart() -> Any:
    """The field of a group that keeps its nodes on different hypervisors."""
    return option(False, "Whether each of them is on a hypervisor without any other of them", example=True)


def check(hypervisors: int, groups: Mapping[str, Group], others: Iterable[Group]) -> None:
    """Check that the groups fit on that many hypervisors.

    :param groups: by their place in the spec: ``workers.0``.
    :param others: groups that say nothing about hypervisors: those of add-ons.
    :raises ValueError: they don't fit; the message begins with the place of the field.
    """
    for place, group in groups.items():
        if group.apart and group.count > 1 and group.hypervisor is not None:
            raise ValueError(
                f"{place}.apart: {group.count} nodes can't be apart on one hypervisor; leave one field out"
            )
        if group.apart and group.count > hypervisors:
            raise ValueError(
                f"{place}.apart: {group.count} nodes that are apart need as many hypervisors, and hypervisors is "
                f"{hypervisors}"
            )
    pins = dict.fromkeys(group.hypervisor for group in groups.values() if group.count and group.hypervisor is not None)
    if len(pins) > hypervisors:
        raise ValueError(f"hypervisors: the spec names {', '.join(pins)}, which is more than {hypervisors}")
    nodes = sum(group.count for group in (*groups.values(), *others))
    if hypervisors > max(1, nodes):
        raise ValueError(f"hypervisors: {nodes} nodes can't use {hypervisors} hypervisors")
