"""SIGTERM and SIGHUP end a command as Ctrl-C does."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from winlab.cli import main, progress, signals
from winlab.design.plan import make


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    every = (signal.SIGINT, *signals.ENDING)
    before = {number: signal.getsignal(number) for number in every}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    for number in signals.ENDING:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_signal_ends_a_command_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, output: str
) -> None:
    released = []

    def work(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            released.append(True)

    monkeypatch.setattr(progress, "_last", None)  # one process runs one command
    monkeypatch.setattr(make, "make", work)
    monkeypatch.setattr(sys, "argv", ["winlab", "plan", "--output", output])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert released
    shown = capsys.readouterr()
    assert "interrupted" in shown.err
    if output == "json":
        assert json.loads(shown.out.splitlines()[-1])["exit_code"] == 130
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.as_interrupts():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_not_heard_is_told(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The main thread waits in a C library that knows nothing of Python's signals."""
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    libc, mutex, told = ctypes.CDLL(None), ctypes.create_string_buffer(64), threading.Event()

    def unheard() -> None:
        told.set()
        libc.pthread_mutex_unlock(mutex)

    def blocked() -> None:
        libc.pthread_mutex_lock(mutex)
        with signals.as_interrupts(unheard):
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
            libc.pthread_mutex_lock(mutex)

    with pytest.raises(KeyboardInterrupt):
        blocked()
    assert told.is_set()
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_what_is_not_heard_ends_also_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be told any more; the command must not hang for that."""
    codes: list[int] = []

    def gone(*_: object, **__: object) -> None:
        raise OSError("the terminal is gone")

    monkeypatch.setattr(main.common, "say", gone)
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(OSError, match="terminal"):  # as os._exit comes back here
        main._end_unheard()
    assert codes == [130]


def test_a_signal_that_is_heard_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    told = threading.Event()

    def work() -> None:
        with signals.as_interrupts(told.set):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                time.sleep(0.2)  # the clean-up takes longer than the watch waits

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not told.is_set()


def test_a_lost_terminal_is_not_written_to() -> None:
    """Else the message about the interrupt would fail itself."""
    master, slave = pty.openpty()
    try:
        signals._leave([slave])
        os.close(master)
        assert os.write(slave, b"into the void") == 13
    finally:
        os.close(slave)
