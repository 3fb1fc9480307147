"""winlab exec: which words belong to the command, its input, a reader that has seen enough."""

from __future__ import annotations

import io
import os
from types import SimpleNamespace
from typing import Any

import pytest
from commands import run as winlab

from winlab import Node
from winlab.cli.node import separated


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, list[str], Any]]:
    """The lab, the node, the command and its input, of each command that ran."""
    calls: list[tuple[str, str, list[str], Any]] = []

    def stream(self: Node, command: list[str], out: Any, err: Any, *, stdin: bytes, via: Any) -> int:
        calls.append((self.lab, self.name, command, stdin))
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
        ("", ""),
    ],
)
def test_everything_after_the_node_is_the_command(words: str, same: str) -> None:
    assert separated(words.split(), {"--lab", "--via"}) == same.split()


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
    """Only then: a script's loop would lose its own."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"echo hi\n")))
    assert winlab(monkeypatch, "exec", "c", "sh") == 3
    assert winlab(monkeypatch, "exec", "-i", "c", "sh", "-i") == 3
    assert ran == [("lab", "c", ["sh"], b""), ("lab", "c", ["sh", "-i"], b"echo hi\n")]


def test_an_endless_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("winlab.cli.node.MOST_INPUT", 5)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"123456")))
    assert winlab(monkeypatch, "exec", "-i", "c", "sh") == 2
    assert "The standard input has more than" in capsys.readouterr().err
    assert ran == []


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
