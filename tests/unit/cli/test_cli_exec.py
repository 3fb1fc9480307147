"""winlab exec: which words belong to the command, its input, a reader that has seen enough."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import results
from commands import ran as caught
from commands import run as winlab

from winlab import Lab, Node
from winlab.cli.execute import GROUPS, MOST, End, Prefixed
from winlab.cli.verbatim import separated
from winlab.errors import OffError
from winlab.operations.group import Ended


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, list[str], Any]]:
    """The lab, the node, the command and its input, of each command that ran."""
    calls: list[tuple[str, str, list[str], Any]] = []

    def stream(self: Node, command: list[str], out: Any, err: Any, *, stdin: bytes, via: Any) -> int:
        calls.append((self.lab, self.name, command, stdin if isinstance(stdin, bytes) else list(stdin)))
        out(b"x\n")
        return 3

    monkeypatch.setattr(Node, "stream", stream)
    return calls


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("c ls -la", "c -- ls -la"),
        ("c -- ls -la", "c -- ls -la"),
        ("c --lab ci ls --lab x", "c --lab ci -- ls --lab x"),
        ("--via ssh c --lab=ci -i ls --help", "--via ssh c --lab=ci -i -- ls --help"),
        ("c -- ls -- x", "c -- ls -- x"),
        ("-i -- c ls -h", "-i -- c ls -h"),
        ("c ls -- x", "c -- ls -- x"),
        ("c", "c"),
        ("c --help", "c --help"),
        ("--all hostname -s", "--all -- hostname -s"),
        ("--pool a --linux ls -la", "--pool a --linux -- ls -la"),
        ("--pool=a -- ls", "--pool=a -- ls"),
        ("c ls --all", "c -- ls --all"),
        ("", ""),
    ],
)
def test_everything_after_the_node_is_the_command(words: str, same: str) -> None:
    assert separated(words.split(), {"--lab", "--via", "--pool"}, instead=GROUPS) == same.split()


@pytest.mark.parametrize("words", ["c ls -la --lab x", "c -- ls -la --lab x", "--lab lab c ls -la --lab x"])
def test_a_command_has_its_own_options(
    monkeypatch: pytest.MonkeyPatch, ran: list[Any], words: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """ux D14: 'No such option: -l'."""
    assert winlab(monkeypatch, "exec", *words.split()) == 3
    assert ran == [("lab", "c", ["ls", "-la", "--lab", "x"], b"")]
    assert capfdbinary.readouterr().out == b"x\n"


def test_flags_stand_before_the_command(monkeypatch: pytest.MonkeyPatch, ran: list[Any]) -> None:
    assert winlab(monkeypatch, "exec", "node-1", "--lab", "ci", "--via", "ssh", "--", "ipconfig", "/all") == 3
    assert winlab(monkeypatch, "exec", "node-1", "--lab", "ci", "ipconfig", "/all") == 3
    assert ran == [("ci", "node-1", ["ipconfig", "/all"], b"")] * 2


def test_the_standard_input_is_passed_on_if_the_user_says_so(monkeypatch: pytest.MonkeyPatch, ran: list[Any]) -> None:
    """Only then: a script's loop would lose its own. It is not read to its end first."""
    reading, writing = os.pipe()
    os.write(writing, b"echo hi\n")
    os.close(writing)
    with os.fdopen(reading) as given:
        monkeypatch.setattr("sys.stdin", given)
        assert winlab(monkeypatch, "exec", "c", "sh") == 3
        assert winlab(monkeypatch, "exec", "-i", "c", "sh", "-i") == 3
    assert ran == [("lab", "c", ["sh"], b""), ("lab", "c", ["sh", "-i"], [b"echo hi\n"])]


@pytest.mark.parametrize("words", ["-o json c ls -o yaml", "c -o json -- ls -o yaml"])
def test_a_document_for_programs(ran: list[Any], words: str) -> None:
    """An option after the node's command is the command's."""
    done = caught("exec", *words.split())
    assert done.exit_code == 3
    assert results.item(done.stdout) == {
        "name": "c", "exit_code": 3, "stdout": "x\n", "stderr": "", "truncated": False, "problem": "",
    }  # fmt: skip
    assert ran[0][2] == ["ls", "-o", "yaml"]


def test_a_windows_exit_code_is_whole_in_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code of winlab has 8 bits."""

    def stream(self: Node, command: list[str], out: Any, err: Any, *, stdin: bytes, via: Any) -> int:
        err(b"\xff\x1b[2J\n")
        return 0xC0000005

    monkeypatch.setattr(Node, "stream", stream)
    done = caught("exec", "-o", "json", "c", "ls")
    item = results.item(done.stdout)
    assert (done.exit_code, item["exit_code"], item["stderr"]) == (255, 0xC0000005, "\ufffd\ufffd[2J\n")


def test_a_document_has_the_end_of_what_nodes_print() -> None:
    end = End()
    end("a", b"x" * MOST)
    end("b", b"b")
    assert not end.cut
    end("a", b"yz")
    assert (end.cut, len(end.of("a")), end.of("a")[-3:], end.of("b"), end.of("c")) == ({"a"}, MOST, "xyz", "b", "")


# -- several nodes


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Which nodes were selected, and the commands that ran on them."""
    calls: list[tuple[Any, ...]] = []

    def select(self: Lab, *, pools: list[str], systems: list[str]) -> list[str]:
        calls.append((self.name, list(pools), systems))
        return ["controller-1", "node-1"]

    def execute(self: Lab, command: list[str], nodes: list[str], *, stdout: Any, stderr: Any) -> dict[str, Ended]:
        calls.append((command, nodes))
        for node in nodes:
            stdout(node, b"one\r\ntw")
        for node in nodes:
            stdout(node, b"o")
        return {"controller-1": Ended(7), "node-1": Ended(9, OffError("'node-1' is off.", cure="Start it."))}

    monkeypatch.setattr(Lab, "select", select)
    monkeypatch.setattr(Lab, "execute", execute)
    return calls


def test_output_of_several_nodes_has_their_names_before_it(
    monkeypatch: pytest.MonkeyPatch, group: list[Any], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """And the exit code is the highest."""
    assert winlab(monkeypatch, "exec", "--all", "--lab", "ci", "hostname", "-s") == 9
    assert group == [("ci", [], []), (["hostname", "-s"], ["controller-1", "node-1"])]
    out, err = capfdbinary.readouterr()
    assert out.decode().splitlines() == [
        "controller-1 | one",
        "node-1       | one",
        "controller-1 | two",
        "node-1       | two",
    ]
    assert err.decode().splitlines()[0] == "node-1       | winlab: 'node-1' is off."


def test_a_document_has_each_node(group: list[Any]) -> None:
    done = caught("exec", "--all", "-o", "json", "hostname")
    assert done.exit_code == 9
    first, second = results.items(done.stdout)
    assert (first["name"], first["exit_code"], first["stdout"], first["problem"]) == ("controller-1", 7, "one\ntwo", "")
    assert (second["name"], second["exit_code"]) == ("node-1", 9)
    assert second["problem"] == "'node-1' is off.\n  cure: Start it."
    assert caught("exec", "--all", "-o", "name", "hostname").stdout.split() == ["controller-1", "node-1"]


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        ("--pool a --pool b x", (["a", "b"], [])),
        ("--linux x", ([], ["linux"])),
        ("--windows --pool a x", (["a"], ["windows"])),
        ("--all --windows x", ([], [])),
    ],
)
def test_flags_select_nodes(
    monkeypatch: pytest.MonkeyPatch, group: list[Any], words: str, selected: tuple[list[str], list[str]]
) -> None:
    assert winlab(monkeypatch, "exec", *words.split()) == 9
    assert group[0] == ("lab", *selected)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--all -i sh", "are for a single node"),
        ("c", "The command is missing"),
        ("-t c top", "needs a terminal"),
        ("-t --via winrm c top", "WinRM has no terminals"),
        ("-t -o json c top", "can't be a document"),
    ],
)
def test_what_does_not_go_together(
    monkeypatch: pytest.MonkeyPatch, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert winlab(monkeypatch, "exec", *words.split()) == 2
    assert says in capsys.readouterr().err


def test_lines_of_nodes_are_not_mixed() -> None:
    out = bytearray()
    prefixed = Prefixed(out.extend, 1, threading.Lock())
    for node, chunk in (("a", b"1\n2"), ("b", b"x\n"), ("a", b"3\n"), ("b", b"\xff")):
        prefixed(node, chunk)
    prefixed.end()
    assert bytes(out) == b"a | 1\nb | x\na | 23\nb | \xff\n"
    prefixed("a", b"z" * (1 << 20))  # an endless line
    assert out.endswith(b"z\n")


def test_a_reader_that_has_seen_enough_ends_it_quietly(
    monkeypatch: pytest.MonkeyPatch, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """ux N4: as for a program that SIGPIPE ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert winlab(monkeypatch, "exec", "c", "yes") == 141
        print("into the void", flush=True)
    assert capsys.readouterr().err == ""
