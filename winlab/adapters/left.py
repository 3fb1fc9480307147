"""What labs left on hypervisors that did not answer, as OVN's database records it. Nothing that is read is believed.

A hypervisor that comes back still has machines of labs that were destroyed, or of nodes that another one now has. They
don't count as the lab's, and are removed as soon as it answers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from winlab import documents
from winlab.adapters.registered import LARGEST, NAME, PREFIX
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.tags import Tag
from winlab.errors import UsageError

LEFT = (
    f"{PREFIX}left/"  # of its key in the external_ids of NB_Global; HYPERVISOR/LAB follows. No hypervisor is called so
)
WORD = re.compile(r"[a-z][a-z0-9-]{0,62}")  # a lab or a node


class Left(BaseModel):
    """What one lab left on one hypervisor.

    :param nodes: the nodes that have a machine or volumes there, as far as they are known.
    :param whole: everything of the lab there, because the lab was destroyed; otherwise only of these nodes.
    :param since: when it was left.
    :param chassis: OVN's name of the host that had the hypervisor's name then; empty: not known.
    """

    model_config = ConfigDict(frozen=True)  # a later winlab may record more

    hypervisor: str = Field("", exclude=True)  # in the key
    lab: str = Field("", exclude=True)
    nodes: tuple[str, ...] = ()
    whole: bool = False
    since: datetime = Field(default_factory=lambda: datetime.now(UTC))
    chassis: str = ""

    @property
    def key(self) -> str:
        """Its key in the database."""
        return f"{LEFT}{self.hypervisor}/{self.lab}"

    def __str__(self) -> str:
        """What to report."""
        what = ", ".join(self.nodes) or "machines"
        may = "still has" if self.nodes else "may still have"
        lab = f"The hypervisor '{self.hypervisor}' {may} {what} of the lab '{self.lab}'."
        return f"{lab} The next command that changes a lab removes that, if the hypervisor answers."

    @property
    def prefixes(self) -> tuple[str, ...]:
        """How the names of its volumes begin."""
        return (f"{self.lab}.",) if self.whole else tuple(f"{self.lab}.{node}." for node in self.nodes)

    def has(self, tag: Tag) -> bool:
        """Whether a machine on this hypervisor is one that was left."""
        return tag.lab == self.lab and (self.whole or tag.node in self.nodes)

    def with_nodes(self, other: Left) -> Left:
        """This, and what was left there before."""
        nodes = tuple(dict.fromkeys((*other.nodes, *self.nodes)))
        return self.model_copy(update={"nodes": nodes, "whole": self.whole or other.whole})

    @classmethod
    def parse(cls, key: str, text: str) -> Self | None:
        """A record as it was read; None if it is not one that winlab writes."""
        host, _, lab = key.removeprefix(LEFT).partition("/")
        if not NAME.fullmatch(host) or host == HYPERVISOR or not WORD.fullmatch(lab) or len(text) > LARGEST:
            return None
        try:
            value: Any = documents.from_json(text)
            found = cls.model_validate({**value, "hypervisor": host, "lab": lab})
        except (UsageError, ValueError, TypeError):  # pydantic's and json's are ValueErrors
            return None
        return found if all(WORD.fullmatch(node) for node in found.nodes) else None
