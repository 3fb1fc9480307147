"""A step: the state it reaches, the states it comes after, and what it needs of this machine while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from winlab.engine.state import State
from winlab.errors import SequenceError
from winlab.events import Planned, Progress


class Load(Enum):
    """What a step needs of this machine, and thus how many such steps run at once."""

    WAITS = "waits"  # for a guest, a server, the network: no limit
    CORE = "core"  # computes: one per processor and one more, because most of them wait at times
    POOL = "pool"  # writes a volume: one after another

    @property
    def at_once(self) -> int:
        """The maximum number of such steps that run at the same time."""
        return {Load.WAITS: 256, Load.CORE: (os.cpu_count() or 1) + 1, Load.POOL: 1}[self]


@dataclass(frozen=True)
class Step:
    """One thing to be done.

    :param reaches: the state that holds when it is done; no two steps reach the same.
    :param run: does the work and reports progress; a report raises :class:`winlab.stopping.Stopped` to stop it.
    :param done: looks up whether the work is done already. Called only when every state in *after* is reached.
    :param after: the states that it needs, regardless of which steps reach them.
    :param also: other states that hold when it is done.
    :param usual: how long it usually takes, in seconds.
    :param measured: whether that was measured on this host; otherwise it is an estimate.
    :param case: what else the time depends on, such as whether a machine boots or is resumed.
    :param finishes: it runs to its end if another step fails meanwhile, but not if the user interrupts.
    """

    reaches: State
    run: Callable[[Progress], object]
    done: Callable[[], bool]
    after: Iterable[State] = ()
    also: Iterable[State] = ()
    usual: float = 0.0
    measured: bool = False
    case: str = ""
    load: Load = Load.WAITS
    finishes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", frozenset(self.after))
        object.__setattr__(self, "also", frozenset(self.also))

    @property
    def title(self) -> str:
        """The step's name for people."""
        return self.reaches.title

    @property
    def is_estimated(self) -> bool:
        """Whether its usual time is an estimate."""
        return self.usual > 0 and not self.measured

    @property
    def states(self) -> frozenset[State]:
        """Every state that holds when it is done."""
        return frozenset((self.reaches, *self.also))

    @property
    def needs(self) -> frozenset[State]:
        """The states that it comes after."""
        return frozenset(self.after)


def planned(order: Sequence[Step]) -> tuple[Planned, ...]:
    """Composed steps as the first event of their run has them."""
    by_state = {state: number for number, step in enumerate(order, 1) for state in step.states}
    return tuple(
        Planned(
            step.title,
            step.reaches.kind.name,
            step.reaches.lab,
            step.reaches.node,
            step.usual,
            tuple(sorted({by_state[state] for state in step.needs})),
            step.is_estimated,
        )
        for step in order
    )


def compose(steps: Iterable[Step]) -> Sequence[Step]:
    """Put steps together, each after those that reach what it needs.

    :raises SequenceError: two reach the same state, none reaches one that a step needs, or steps wait for each other.
    """
    every = list(steps)
    by_state: dict[State, Step] = {}
    for step in every:
        for state in step.states:
            if (other := by_state.setdefault(state, step)) is not step:
                raise _bug(f"Two steps reach the state {state}: '{other.title}' and '{step.title}'.")
    for step in every:
        for state in step.needs:
            if state not in by_state:
                raise _bug(f"The step '{step.title}' waits for the state {state}, and no step reaches it.")
    left, reached, order = every, set[State](), list[Step]()
    while left:
        ready = [step for step in left if step.needs <= reached]
        if not ready:
            raise _bug(f"Steps wait for each other: {', '.join(_circle(left[0], by_state, reached))}.")
        order += ready
        reached.update(state for step in ready for state in step.states)
        left = [step for step in left if step not in ready]
    return order


def _circle(step: Step, by_state: dict[State, Step], reached: set[State]) -> list[str]:
    """The titles of steps that wait for each other, found by following what each waits for."""
    path: list[Step] = []
    while step not in path:
        path.append(step)
        step = by_state[next(state for state in sorted(step.needs, key=str) if state not in reached)]
    circle = [member.title for member in path[path.index(step) :]]
    return [f"'{one}' after '{other}'" for one, other in zip(circle, [*circle[1:], circle[0]], strict=True)]


def _bug(what: str) -> SequenceError:
    return SequenceError(
        what,
        why="This is a bug in winlab or in an add-on. Nothing was touched.",
        cure="Run the command again with 'winlab --debug ...' and report what it prints.",
    )
