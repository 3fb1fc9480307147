"""The example of docs/api.md that looks at a lab, run against one; tests/unit/test_api.py runs the others."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import example
import pytest
from harness import LAB_A, Labs

from winlab import Lab, NotFoundError, Site


@pytest.fixture
def lab(labs: Labs, state: Path) -> Lab:
    return Lab(LAB_A, Site(state=state))


def test_the_example_looks_at_a_lab(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lab": lab, "Lab": Lab, "Path": Path}
    exec(example.code("Look"), names)
    said = capsys.readouterr().out
    assert "node-1 running" in said
    assert names["done"].exit_code == 0
    assert names["done"].stdout.strip().lower() == "node-1"
    assert "controller-1" in said
    assert any("Ready=True" in row for row in names["report"].conditions)
    assert LAB_A in said
    width, height = struct.unpack(">II", (tmp_path / "screen.png").read_bytes()[16:24])
    assert (width, height) > (0, 0)


def test_a_missing_node(lab: Lab) -> None:
    with pytest.raises(NotFoundError, match="has no node 'node-9'"):
        lab.node("node-9").execute(["hostname"])


def test_the_serial_log_and_the_kubeconfig(lab: Lab) -> None:
    assert b"winlab: phase=ready" in lab.node("controller-1").serial_log()
    assert f"winlab-{LAB_A}" in lab.kubeconfig()
    assert [machine.tag.node for machine in lab.machines()] == ["controller-1", "node-1"]
