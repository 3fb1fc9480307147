"""The wrapper of a command's output: which processes it kills, and when it keeps a point for later."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from survive import wired

STARTED = json.dumps({"event": "StepStarted", "step": "boot node-1"}) + "\n"


@pytest.mark.parametrize(("target", "pids"), [("guest survive", [11, 12]), ("guest survive", []), ("", [os.getpid()])])
def test_a_point_without_a_process_to_kill_stays_armed(
    target: str, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(wired, "find", lambda _: pids)
    monkeypatch.setattr(wired.os, "kill", lambda pid, _: killed.append(pid))
    armed, fired = tmp_path / "armed", tmp_path / "fired"
    armed.touch()
    told = {"wanted": [["boot node-1", "beginning"]], "usual": {}, "spent": {}, "target": target, "signal": 9}
    out = io.StringIO()
    wired._Wire(out, {**told, "armed": str(armed), "fired": str(fired)}).write(STARTED)
    assert (out.getvalue(), killed) == (STARTED, pids)
    assert armed.exists() is (not pids)
    assert fired.exists() is bool(pids)
