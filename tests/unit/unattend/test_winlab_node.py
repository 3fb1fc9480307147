"""What winlab does inside Linux nodes: the package winlab_node, how it is called and sent."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from linux_guest import Guest

from winlab import data
from winlab.adapters.guests import node_program
from winlab_node import __main__ as program
from winlab_node import alone
from winlab_node.node import NodeError


def test_status_of_a_fresh_guest(guest: Guest) -> None:
    found = guest.do("status", {})
    assert found["boot_time"] == "2025-11-21T14:00:00Z"
    assert found["boot_id"] == "b1"
    assert (found["programs"], found["prepared"], found["joined"], found["started"]) == ({}, False, False, False)
    assert found["containerd"] == {"service": "absent"}


def test_logs(guest: Guest) -> None:
    guest.runner.answers["journalctl"] = (0, "one\ntwo\n")
    guest.put("var/log/winlab/kubeadm.log", "a\nb\nc\n")
    found = guest.do("logs", {"lines": 2})["logs"]
    assert (found["kubelet"], found["kubeadm"]) == ("one\ntwo\n", "b\nc")
    with pytest.raises(NodeError, match="between 1 and 10000"):
        guest.do("logs", {"lines": 0})


def test_the_result_is_the_last_line(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["cni"], json.dumps({"files": {"10-a.conf": "{}"}}), guest.node()) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"changed": True}


@pytest.mark.parametrize(
    ("arguments", "settings", "match"),
    [
        (["dance"], "{}", "usage: node.pyz"),
        ([], "{}", "usage: node.pyz"),
        (["cni"], "{", "no JSON"),
        (["cni"], "[]", "no JSON object"),
        (["cni"], "{}", "'files' is missing"),
        (["run-kubeadm"], '{"arguments": []}', "list of words"),
    ],
)
def test_bad_calls_end_with_a_message(
    guest: Guest, capsys: pytest.CaptureFixture[str], arguments: list[str], settings: str, match: str
) -> None:
    assert program.main(arguments, settings, guest.node()) == 1
    said = capsys.readouterr()
    assert match in said.err
    assert said.out == ""


PACKAGE = data.folder("unattend") / "linux/winlab_node"


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_it_runs_on_the_oldest_python_of_the_guests(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 10))  # Ubuntu 22.04
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported <= sys.stdlib_module_names | {"winlab_node"}
    assert len(source.splitlines()) < 250


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one file that winlab sends, to be run as if the package existed only there."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "winlab_node"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "winlab_node").exists()])
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    path = tmp_path / "node.pyz"
    path.write_bytes(node_program.build())
    yield path
    for name in [name for name in sys.modules if name.partition(".")[0] == "winlab_node"]:
        del sys.modules[name]  # those of the file; the others are restored


@pytest.mark.parametrize(
    ("verb", "loaded"),
    [
        ("dance", {"node"}),
        ("cni", {"node", "cni", "alone"}),
        ("routes", {"node", "network", "alone"}),
        ("run-kubeadm", {"node", "state", "kubeadm", "alone"}),
    ],
)
def test_one_file_runs_and_loads_what_a_verb_needs(
    sent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, loaded: set[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(sent), verb])
    lock, true = Path("/", alone.LOCK), Path.open  # it runs on this host's own tree
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setattr(Path, "open", lambda path, mode: true(sent.with_name("lock") if path == lock else path, mode))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(sent), run_name="__main__")
    assert ended.value.code == 1
    assert ("usage" if verb == "dance" else "is missing in the settings") in capsys.readouterr().err
    found = {name: module for name, module in sys.modules.items() if name.startswith("winlab_node.")}
    assert {name.partition(".")[2] for name in found} == {"__main__", *loaded}
    assert all(str(module.__file__).startswith(str(sent)) for module in found.values())


def test_every_verb_is_in_the_one_file(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(sent))
    from winlab_node import __main__ as unpacked

    assert str(unpacked.__file__).startswith(str(sent))
    assert all(callable(unpacked.verb(name)) for name in unpacked.VERBS)


def test_the_one_file_depends_on_the_sources_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = node_program.build()
    copied = tmp_path / "unattend/linux/winlab_node"
    (copied / "__pycache__").mkdir(parents=True)
    (copied / "__pycache__/node.cpython-311.pyc").write_bytes(b"compiled")
    for path in PACKAGE.glob("*.py"):
        (copied / path.name).write_bytes(path.read_bytes())
        os.utime(copied / path.name, (1, 1))
    monkeypatch.setattr(data, "folder", lambda name: tmp_path / name)
    assert node_program.build() == first
    (copied / "node.py").write_text("# another\n")
    assert node_program.build() != first
    assert b"# another\n" in node_program.build(), "nothing is compressed"
