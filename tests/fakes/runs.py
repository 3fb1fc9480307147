"""What the steps of one run share, without a hypervisor; and time that passes without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sites import FakeSite, hypervisor

from winlab import stopping
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design.plan import lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.engine import wait
from winlab.engine.durations import Durations
from winlab.engine.run import Pace, Run, Sources
from winlab.engine.step import Step
from winlab.lab_folder import LabFolder


@dataclass(frozen=True)
class Played(Run):
    """A run whose nodes are fakes."""

    guests: Callable[[NodePlan], Any] | None = None

    def node(self, node: NodePlan) -> Any:
        assert self.guests is not None, "this test has no nodes"
        return entered(self.guests(node))


class Empty:
    """A pool without volumes, so without any serial log."""

    def exists(self, _name: str) -> bool:
        return False

    def refresh(self) -> None:
        pass

    def download(self, _name: str, _offset: int = 0, _most: int = 0) -> bytes:
        return b""


@contextmanager
def entered(guest: Any) -> Iterator[Any]:
    yield guest


def run(
    plan: Plan,
    *,
    conn: object = None,
    pool: object = None,
    folder: object = None,
    overlay: object = None,
    hypervisors: Sequence[Hypervisor] = (),
    sources: Sources | None = None,
    guest: object = None,
    guests: Callable[[NodePlan], Any] | None = None,
) -> Run:
    """A run on hardware's pace.

    :param conn: to the only hypervisor, and its pool, unless several are given.
    :param guest: the fake for every node.
    :param guests: the fake for each node.
    """
    usual = hypervisor(conn, Empty() if pool is None else pool, facts=plan.host.machine)
    site = FakeSite(*(hypervisors or [usual]), overlay=overlay)
    return Played(
        cast(LabFolder, folder) or LabFolder(plan.lab),
        site,
        site.each,
        Pace(1.0, Durations("tcg")),
        plan,
        sources=sources or Sources(),
        guests=guests or (None if guest is None else lambda _: guest),
    )


def title_of(step: Step) -> str:
    """A step's title, in which a golden image's lab and machine, which have a digest in their name, are "golden"."""
    lab = step.reaches.lab
    return step.title.replace(lab, "golden") if lab.startswith(lab_name.GOLDEN) else step.title


def titled(steps: list[Step], title: str) -> Step:
    """The one step of this title; see :func:`title_of`."""
    (found,) = [step for step in steps if title_of(step) == title]
    return found


def error_of(call: Callable[[], object]) -> BaseException | None:
    """The error that a call raises in a thread of its own, or None. The call must end."""
    errors: list[BaseException | None] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)
        else:
            errors.append(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the call does not end"
    return errors[0]


class Clock:
    """Time that passes during a sleep, and a little at each question."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 100.0
        self.tick = tick
        self.sleeping: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeping()


def clock(monkeypatch: pytest.MonkeyPatch, *modules: object) -> Clock:
    """The clock of :mod:`winlab.engine.wait`, of :mod:`winlab.stopping` and of these modules."""
    made = Clock()
    for module in (wait, stopping, *modules):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=made.monotonic, sleep=made.sleep, time=lambda: 0.0)
        )
    return made
