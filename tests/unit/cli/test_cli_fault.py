"""winlab fault: its flags and its output. No lab is touched."""

from __future__ import annotations

from typing import Any

import commands
import pytest
import results

from winlab import Lab
from winlab.design import fault


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def add(lab: Lab, kind: str, *nodes: str, listener: Any, **settings: Any) -> fault.Fault:
        calls.append((lab.name, kind, nodes, settings))
        return fault.make(kind, nodes, **settings)

    there = [fault.make("loss", ["node-1"], percent=20), fault.make("partition", ["node-1", "a"])]
    monkeypatch.setattr(Lab, "add_fault", add)
    monkeypatch.setattr(Lab, "faults", lambda lab: there)
    monkeypatch.setattr(Lab, "clear_faults", lambda lab, which, listener: calls.append(which) or there)
    return calls


def winlab(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return commands.run(monkeypatch, "fault", *words)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("loss node-1 --percent 20", ("lab", "loss", ("node-1",), {"percent": 20.0})),
        ("loss node-1 a --percent 0.5", ("lab", "loss", ("node-1", "a"), {"percent": 0.5})),
        ("delay node-1 --ms 100 --jitter 20", ("lab", "delay", ("node-1",), {"ms": 100, "jitter": 20})),
        ("partition node-1 controller-1", ("lab", "partition", ("node-1", "controller-1"), {})),
        ("bandwidth node-1 --mbit 10 --lab b", ("b", "bandwidth", ("node-1",), {"mbit": 10.0})),
        ("clock node-1 --skew=-2h", ("lab", "clock", ("node-1",), {"skew": "-2h"})),
        ("kill node-1", ("lab", "kill", ("node-1",), {})),
        ("freeze node-1", ("lab", "freeze", ("node-1",), {})),
        ("disk node-1", ("lab", "disk", ("node-1",), {})),
        ("disk node-1 --free 50MiB", ("lab", "disk", ("node-1",), {"free": "50MiB"})),
    ],
)
def test_flags(monkeypatch: pytest.MonkeyPatch, asked: list[Any], words: str, call: Any) -> None:
    assert winlab(monkeypatch, "add", *words.split()) == 0
    assert asked == [call]


@pytest.mark.parametrize("words", ["fire node-1", "kill node-1 node-2", "loss node-1", "clock node-1 --skew=0"])
def test_invalid_input_is_refused(monkeypatch: pytest.MonkeyPatch, asked: list[Any], words: str) -> None:
    assert winlab(monkeypatch, "add", *words.split()) == 2


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    assert winlab(monkeypatch, "list") == 0
    assert "20 % of the packets are lost" in capsys.readouterr().out
    assert winlab(monkeypatch, "list", "--output", "json") == 0
    assert results.items(capsys.readouterr().out)[0] == {
        "name": "loss.node-1",
        "lab": "lab",
        "kind": "loss",
        "nodes": ["node-1"],
        "settings": {"percent": 20.0},
        "effect": "20 % of the packets are lost",
        "unfinished": False,
    }


def test_an_unfinished_fault_is_shown_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Lab, "faults", lambda lab: [fault.make("clock", ["node-1"], skew="+2h").begun()])
    assert winlab(monkeypatch, "list") == 0
    shown = capsys.readouterr().out
    assert "clock.node-1 (unfinished)" in shown
    assert "add it again, or clear it" in shown


def test_clear(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[Any]) -> None:
    assert winlab(monkeypatch, "clear") == 0
    assert winlab(monkeypatch, "clear", "loss.node-1") == 0
    assert asked == ["", "loss.node-1"]
    assert "Cleared: loss.node-1, partition.a.node-1." in capsys.readouterr().out
