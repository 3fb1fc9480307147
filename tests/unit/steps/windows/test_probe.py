"""What winlab's scripts rely on in Windows: each deviation has its own sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_windows
from winlab.design.contract.call import QUESTION, WORK, Call, R
from winlab.design.system import WINDOWS
from winlab.errors import GuestCommandError, GuestError, SilentError
from winlab.events import Quiet
from winlab.steps.windows import probe

NOW = 1_800_000_000.0
FINE: dict[str, Any] = {
    "text": probe.TEXT,
    "sha256": probe.DIGEST,
    "elevated": True,
    "language": "FullLanguage",
    "version": "5.1.20348.558",
    "clock": round(NOW * 1000),
}


class Node:
    def __init__(self, code: int = probe.CODE, **special: Any) -> None:
        self.tag = SimpleNamespace(lab="lab", node="node-1", system=WINDOWS)
        self.code = code
        self.told = {**FINE, **special}
        self.executed: list[str] = []

    def run(self, call: Call[R], *_: Any) -> R:
        assert call == on_windows.Probe(text=probe.TEXT, block=probe.BLOCK)
        return call.read(self.told, "node-1", "lab")

    def execute(self, command: list[str], silence: float = WORK) -> str:
        if command == ["cmd.exe /c exit 3"] and self.code:
            raise GuestCommandError("ended", code=self.code)
        self.executed += command
        return ""


def check(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "time", SimpleNamespace(time=lambda: NOW))
    probe.check(cast(NodeScripts, node), Quiet())


def test_a_healthy_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    check(node, monkeypatch)
    assert node.executed == []


@pytest.mark.parametrize(
    ("special", "says"),
    [
        ({"text": "winlab: Gr??e"}, "Letters don't come back as they were sent: 'winlab: Gr??e'"),
        ({"sha256": "0" * 64}, "Input of 150 KiB does not arrive whole."),
        ({"elevated": False}, "filtered token"),
        ({"language": "ConstrainedLanguage"}, "restricts PowerShell to ConstrainedLanguage"),
        ({"version": "7.4.1"}, "powershell.exe is 7.4.1, not 5.1."),
        ({"code": 0}, "comes back as 0"),
        ({"code": 1}, "comes back as 1"),
    ],
)
def test_each_deviation_is_named(special: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GuestError) as caught:
        check(Node(**special), monkeypatch)
    assert says in caught.value.why
    assert caught.value.why.count(". ") == 0, "one sentence"


@pytest.mark.parametrize(("off", "set_"), [(29, False), (-29, False), (7200, True), (-90, True)])
def test_a_wrong_clock_is_set(off: int, set_: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(clock=round((NOW + off) * 1000))
    check(node, monkeypatch)
    assert bool(node.executed) is set_
    if set_:
        assert str(-off * 1000) in node.executed[0]


class Mute(Node):
    """Its script is silent. Without input PowerShell may work or not."""

    def __init__(self, works: bool) -> None:
        super().__init__()
        self.works = works

    def run(self, call: Call[R], *_: Any) -> R:
        raise SilentError("'probe' in 'node-1' has been silent for 124 s, and winlab no longer waits for it.")

    def execute(self, command: list[str], silence: float = WORK) -> str:
        assert "-Command" in command[0]
        assert silence == QUESTION
        if not self.works:
            raise SilentError("A command in 'node-1' has been silent for 124 s.")
        return "1800000000000"


@pytest.mark.parametrize(
    ("works", "says"),
    [
        (True, "Input does not end: a script waits for more."),
        (False, "powershell.exe does not answer, with input or without."),
    ],
)
def test_a_silent_probe_is_explained(works: bool, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GuestError) as caught:
        check(Mute(works), monkeypatch)
    assert caught.value.what == "winlab's scripts can't work in 'node-1'."
    assert caught.value.why == says
