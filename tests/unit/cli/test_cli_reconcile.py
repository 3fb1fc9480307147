"""diff, apply and node: what they pass on, print and end with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import plans
import pytest
import results
from commands import run as winlab

from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan.changes import Change
from winlab.design.spec.model import Spec
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import apply, diff, planning, recorded
from winlab.operations.diff import Difference, Pending

CHANGE = Change("changed", "node node-1: memory", "6 GiB", "8 GiB", when="next start")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    """What was applied: the number of nodes, and the flags."""
    recorded.write(LabFolder("lab"), planning.make(Spec.load("1-2-1", rehearse=True), "lab", plans.TCG, Quiet()))
    made: list[tuple[int, dict[str, Any]]] = []
    monkeypatch.setattr(apply, "apply", lambda one, site, tell, **flags: made.append((len(one.plan.nodes), flags)))
    monkeypatch.setattr(
        diff, "difference", lambda plan, site, _rebuild="": Difference((CHANGE,), (Pending("node-2", "a", "b"),))
    )
    return made


def test_diff_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[tuple[int, dict[str, Any]]]
) -> None:
    assert winlab(monkeypatch, "diff", "--output", "json") == 22
    assert results.item(capsys.readouterr().out) == {
        "name": "lab",
        "changes": [asdict(CHANGE)],
        "pending": [{"node": "node-2", "before": "a", "after": "b"}],
        "unfinished": False,
        "pushed": {},
    }
    assert calls == []


def test_diff_names_programs_that_the_user_pushed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[tuple[int, dict[str, Any]]]
) -> None:
    """ux N8: they stay, and do not count as a difference."""
    own = Pushed("kubelet.exe", "c03ecf60" + "0" * 56, "2026-11-26 12:54 UTC")
    monkeypatch.setattr(diff, "difference", lambda plan, site, _rebuild="": Difference((), pushed=(("node-1", own),)))
    assert winlab(monkeypatch, "diff") == 0
    shown = capsys.readouterr().out
    assert "node-1: kubelet.exe is your own build (c03ecf600000...), pushed at 2026-11-26 12:54 UTC.\n" in shown
    assert winlab(monkeypatch, "diff", "--output", "json") == 0
    assert results.item(capsys.readouterr().out)["pushed"] == {
        "node-1": [{"program": "kubelet.exe", "sha256": own.sha256, "at": "2026-11-26 12:54 UTC"}]
    }


def test_diff_as_a_table_and_without_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[tuple[int, dict[str, Any]]]
) -> None:
    assert winlab(monkeypatch, "diff") == 22
    shown = capsys.readouterr().out
    assert "node node-1: memory" in shown
    assert "next start" in shown
    monkeypatch.setattr(diff, "difference", lambda plan, site, _rebuild="": Difference(()))
    assert winlab(monkeypatch, "diff") == 0
    assert "as planned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "nodes", "flags"),
    [
        (("apply",), 3, {}),
        (("apply", "--set", "workers.count=3", "--restart"), 4, {"restart": True}),
        (("apply", "1-0-1", "--force", "--until", "guests"), 1, {"force": True, "until": "guests"}),
        (("node", "add", "--count", "2"), 5, {}),
        (("node", "remove", "node-2", "--force"), 2, {"force": True}),
        (("node", "rebuild", "node-1"), 3, {"rebuild": "node-1"}),
    ],
)
def test_flags_are_passed_to_the_operation(
    monkeypatch: pytest.MonkeyPatch,
    calls: list[tuple[int, dict[str, Any]]],
    words: tuple[str, ...],
    nodes: int,
    flags: dict[str, Any],
) -> None:
    assert winlab(monkeypatch, *words) == 0
    ((count, given),) = calls
    assert count == nodes
    usual = {"restart": False, "force": False, "rebuild": "", "until": "cluster"}
    assert {name: given[name] for name in usual} == {**usual, **flags}


def test_a_node_is_rebuilt_on_the_hypervisor_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[tuple[int, dict[str, Any]]]
) -> None:
    assert winlab(monkeypatch, "node", "rebuild", "node-1", "--on", "hypervisor-1") == 0
    assert calls[0][1]["rebuild"] == "node-1"
    assert winlab(monkeypatch, "node", "rebuild", "node-1", "--on", "other") == 2
    assert "the site has no hypervisor 'other'" in capsys.readouterr().err
    assert winlab(monkeypatch, "node", "rebuild", "node-9", "--on", "hypervisor-1") == 5
    assert len(calls) == 1


def test_only_the_last_node_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: list[tuple[int, dict[str, Any]]]
) -> None:
    assert winlab(monkeypatch, "node", "remove", "node-1") == 2
    assert "winlab node rebuild node-1" in capsys.readouterr().err
    assert calls == []
