"""The login that finds out whether a node is ready."""

from __future__ import annotations

from collections.abc import Callable

import plans
import pytest
import runs

from winlab.adapters.guests import base
from winlab.steps import boot, systems


class Hanging:
    """It accepts a login and a command, and never ends the command."""

    def __init__(self, clock: runs.Clock) -> None:
        self.clock = clock
        self.closed = False

    def execute(self, command: list[str], sink: base.Sink, *, waiting: Callable[[], None]) -> int:
        while True:
            waiting()
            self.clock.sleep(3)

    def close(self) -> None:
        self.closed = True


def test_a_node_that_accepts_a_command_and_never_ends_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait then continues: it reads the serial port, and gives up when the node has stalled."""
    plan = plans.make(plans.TCG, "1-1-1")
    guest = Hanging(runs.clock(monkeypatch, base))
    monkeypatch.setattr(boot, "connect", lambda *_, **__: guest)
    run = runs.run(plan)
    node = plan.node("node-1")
    login = boot.Login(run, node, systems.of(run, node))
    assert not login.answers()
    assert guest.closed
