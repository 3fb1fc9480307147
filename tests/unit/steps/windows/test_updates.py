"""Windows' updates: restarts end, and what does not install is left out."""

from __future__ import annotations

from typing import Any, cast

import plans
import pytest
import runs

from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract.call import Call, R
from winlab.design.contract.on_windows import Updated, Updates
from winlab.steps.windows import node as windows_node


class Offers:
    """A Windows that offers updates until they stay.

    :param wanted: by title, how often each must be installed. One whose title begins with "fails" says that it failed.
    """

    def __init__(self, wanted: dict[str, int]) -> None:
        self.wanted = wanted
        self.runs: list[list[str]] = []
        self.restarts = 0

    def run(self, call: Call[R], *_: object) -> R:
        assert isinstance(call, Updates)
        offered = [title for title in self.offered() if title not in call.without]
        self.runs.append(offered)
        for title in offered:
            self.wanted[title] -= 1
        failed = [title for title in offered if title.startswith("fails")]
        installed = [title for title in offered if title not in failed]
        return cast(R, Updated(installed=installed, failed=failed, restart=bool(offered)))

    def offered(self) -> list[str]:
        return [title for title, left in self.wanted.items() if left]


class Endless(Offers):
    """It offers one after the other."""

    def offered(self) -> list[str]:
        return super().offered()[:1]


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        del fraction
        self.said.append(text)


def updated(monkeypatch: pytest.MonkeyPatch, there: Offers) -> list[str]:
    """What winlab says while it installs them."""

    def restart(*_: object) -> None:
        there.restarts += 1

    plan, heard = plans.make(plans.KVM, "1-1-1"), Heard()
    worker = windows_node._Worker(runs.run(plan), cast(Any, plan.node("node-1")))
    monkeypatch.setattr(worker, "restart", restart)
    worker.updates(cast(NodeScripts, there), heard)
    return heard.said


def test_updates_are_installed_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Offers({"stack": 1, "cumulative": 2})
    assert updated(monkeypatch, there) == []
    assert there.runs == [["stack", "cumulative"], ["cumulative"], []]
    assert there.restarts == 2


def test_an_update_that_comes_back_twice_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """KB5034439 fails forever where the recovery partition is too small; others are taken back at each restart."""
    there = Offers({"fails": 99, "returns": 99, "good": 1})
    assert updated(monkeypatch, there) == ["not installed: fails"] * 2
    assert there.runs == [["fails", "returns", "good"], ["fails", "returns"], []]


def test_restarts_end(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Endless({f"definitions {number}": 1 for number in range(50)})
    (said,) = updated(monkeypatch, there)
    assert there.restarts == windows_node.MOST_RESTARTS
    assert len(there.runs) == windows_node.MOST_RESTARTS + 1
    assert said.endswith("and gets none after 6: definitions 6")
