"""States: what steps reach and wait for. A state is the identity of a step; all text for users is derived from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from winlab.design.plan.facts import HYPERVISOR


@dataclass(frozen=True)
class Kind:
    """A kind of state, such as "booted".

    :param name: its name in events, in the journal and in the recorded times: it never changes.
    :param words: gives the title of a step that reaches such a state, for people: "boot node-1".
    :param learned: whether the time that it took says anything about the next time.
    """

    name: str
    words: Callable[[State], str] = field(compare=False)
    learned: bool = field(default=True, compare=False)

    def __call__(self, lab: str = "", node: str = "", *, of: str = "", host: str = "") -> State:
        """The state of this kind for a lab, a node in it, or something that labs share."""
        return State(self, node, lab, of, host)


class State(NamedTuple):
    """A state that a step reaches.

    ``lab`` is empty for what labs share, ``node`` for what is not a node's. ``of`` identifies anything else: the system
    of a payload, the base volume of an image. ``host`` is the hypervisor whose pool has it; a second hypervisor has a
    state of its own. Texts leave out the first hypervisor, so that they equal those of labs with only one.
    """

    kind: Kind
    node: str = ""
    lab: str = ""
    of: str = ""
    host: str = ""

    @property
    def title(self) -> str:
        """The title, for users, of the step that reaches it."""
        return f"{self.kind.words(self)} on {self._other}" if self._other else self.kind.words(self)

    @property
    def _other(self) -> str:
        return "" if self.host == HYPERVISOR else self.host

    def __str__(self) -> str:
        about = ", ".join(filter(None, (self.node, self.of, self.lab, self._other)))
        return f"{self.kind.name} ({about})" if about else self.kind.name
