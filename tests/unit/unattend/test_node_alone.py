"""One script at a time changes a Linux node, even if its winlab is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from linux_guest import PROGRAMS, SETTINGS, Guest

from winlab_node import __main__ as program
from winlab_node import alone


def test_changes_of_a_node_wait_for_each_other(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A create was killed while kubeadm ran here; the next one looks, and must not begin a second join."""
    waits: list[float] = []
    order: list[str] = []
    earlier = alone.alone(guest.node(), "run-kubeadm")

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert order == []
        if len(waits) == 2:
            guest.node().keep("kubeadm", {"state": "done"})
            earlier.__exit__(None, None, None)

    monkeypatch.setattr(alone.time, "sleep", sleep)
    monkeypatch.setattr(program, "verb", lambda name: lambda *_: order.append(name) or {})
    earlier.__enter__()
    guest.node().keep("kubeadm", {"state": "begun"})
    assert program.main(["logs"], "", guest.node()) == 0  # looking does not wait
    order.clear()
    assert program.main(["run-kubeadm"], "", guest.node()) == 0
    assert waits == [alone.LOOK] * 2
    assert order == ["run-kubeadm"]
    assert capsys.readouterr().out.count(f"waiting for 'run-kubeadm' (process {os.getpid()})") == 2


def test_a_settled_status_is_that_after_the_change(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = alone.alone(guest.node(), "run-kubeadm")
    guest.node().keep("kubeadm", {"state": "begun"})

    def sleep(_: float) -> None:
        guest.node().keep("kubeadm", {"state": "done"})
        earlier.__exit__(None, None, None)

    monkeypatch.setattr(alone.time, "sleep", sleep)
    earlier.__enter__()
    assert guest.do("status", {})["started"]
    assert not guest.do("status", {"settled": True})["started"]


@contextmanager
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The standard output of a script whose winlab was killed: a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    pipe = os.fdopen(writer, "w")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        yield
    with suppress(BrokenPipeError):  # what was not written yet
        pipe.close()


def test_a_verb_completes_without_a_reader(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubeadm's init takes minutes; otherwise it would end with its first line after the kill, to be done again."""
    guest.burn(PROGRAMS, {})
    with nobody_listens(monkeypatch):
        guest.do("prepare", SETTINGS)
        assert program.main(["status"], "", guest.node()) == 0
    assert guest.do("status", {})["prepared"]


def test_a_waiting_verb_gives_up_without_a_reader(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun nothing, and a third winlab would have to wait for it."""
    with alone.alone(guest.node(), "prepare"), nobody_listens(monkeypatch):
        assert program.main(["run-kubeadm"], "", guest.node()) == 1
