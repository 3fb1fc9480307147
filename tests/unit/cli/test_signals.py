"""SIGTERM and SIGHUP end a command as Ctrl-C does."""

from __future__ import annotations

import ctypes
import os
import pty
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
import results

from winlab import stopping
from winlab.cli import main, session, signals
from winlab.design.plan import make
from winlab.engine import engine
from winlab.engine.state import Kind
from winlab.engine.step import Step
from winlab.events import StepChecking, StepSkipped, StepStarted
from winlab.node import Node
from winlab.supply.images import library


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


def test_an_interrupt_of_exec_says_that_the_command_may_keep_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ssh has no way to end it, and the same command would start a second one beside it."""

    def stream(*_: object, **__: object) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        return 0

    monkeypatch.setattr(Node, "stream", stream)
    monkeypatch.setattr(sys, "argv", ["winlab", "exec", "node-1", "--", "dd if=/dev/zero of=/srv/x"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    said = capsys.readouterr().err
    assert "interrupted.\n  running:  The command may go on in 'node-1'" in said
    assert "resumes" not in said


def test_a_raw_terminal_is_restored_when_a_command_must_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """'winlab serial' has the terminal raw, and libvirtd does not answer."""
    ours, theirs = pty.openpty()
    before, set_back = termios.tcgetattr(theirs), termios.tcsetattr
    tty.setraw(theirs)
    monkeypatch.setattr(main, "_tell_late", lambda _: None)
    monkeypatch.setattr(os, "_exit", lambda _code: None)
    monkeypatch.setattr(termios, "tcsetattr", lambda _zero, when, what: set_back(theirs, when, what))
    main._end_late(session.Session(), before)
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_signal_ends_a_command_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, output: str
) -> None:
    released = []

    def work(*_: object, **_more: object) -> None:
        with session.current().shown() as tell:
            tell(StepStarted(lab="lab", step="init controller-1"))
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            released.append(True)

    monkeypatch.setattr(make, "make", work)
    monkeypatch.setattr(sys, "argv", ["winlab", "plan", "--output", output])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert released
    shown = capsys.readouterr()
    assert "interrupted. Nothing is lost" in shown.err
    assert "running:  Machines, and what these steps began in them: init controller-1" in shown.err
    if output == "json":
        assert results.error(shown.out)["exit_code"] == 130
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_interrupted_import_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """N26: it said that machines keep running, which no import has."""
    path = tmp_path / "big.tar"
    path.write_bytes(b"")

    def bring(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stopping.sleep(10)

    monkeypatch.setattr(library, "bring", bring)
    monkeypatch.setattr(sys, "argv", ["winlab", "image", "import", str(path)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    said = capsys.readouterr().err
    assert said.endswith("winlab: interrupted. Nothing is lost: the same command resumes.\n")
    assert "running:" not in said


def test_a_second_signal_does_not_end_the_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user presses Ctrl-C again, or closes the terminal: then nothing is written to it any more."""
    left: list[list[int]] = []
    monkeypatch.setattr(os, "isatty", lambda number: number == 2)
    monkeypatch.setattr(signals, "_leave", left.append)
    cleaned = False

    def work() -> None:
        nonlocal cleaned
        with signals.as_interrupts():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                for number in (signal.SIGINT, signal.SIGHUP):
                    os.kill(os.getpid(), number)
                cleaned = True

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned
    assert left == [[2]]


def test_ignored_signals_stay_ignored() -> None:
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.as_interrupts():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_without_effect_is_reported(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The main thread waits in a C library that knows nothing of Python's signals."""
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    libc, mutex, told = ctypes.CDLL(None), ctypes.create_string_buffer(64), threading.Event()

    def late() -> None:
        told.set()
        libc.pthread_mutex_unlock(mutex)

    def blocked() -> None:
        libc.pthread_mutex_lock(mutex)
        with signals.as_interrupts(late):
            threading.Timer(1, os.kill, (os.getpid(), number)).start()
            libc.pthread_mutex_lock(mutex)

    with pytest.raises(KeyboardInterrupt):
        blocked()
    assert told.is_set()
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_step_that_never_returns_does_not_hold_the_command(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The main thread hears the signal, and waits for the step's thread. An impatient user sends more of them."""
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    monkeypatch.setattr(signals, "WHOLE", 0.5)
    begun, ended, told = threading.Event(), threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return ended.wait(30)

    def send() -> None:
        begun.wait(10)
        for _ in range(3):
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    sender = threading.Thread(target=send, daemon=True)

    def late() -> None:
        sender.join()  # otherwise the last one comes when no test expects it any more
        told.set()
        ended.set()

    def work() -> None:
        with signals.as_interrupts(late):
            sender.start()
            engine.run([Step(Kind("x", lambda _: "x")("lab"), lambda _: None, hang)], lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert told.is_set()


def test_a_thread_that_is_not_awaited_does_not_delay_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool does not know a thread during whose start the signal came."""
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    monkeypatch.setattr(signals, "WHOLE", 0.2)
    ended = threading.Event()

    def work() -> None:
        with signals.as_interrupts(ended.set):
            threading.Thread(target=ended.wait, args=(30,)).start()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended.is_set()


@pytest.mark.parametrize("gone", [True, False])
def test_threads_that_do_not_end_are_abandoned_even_without_a_reader(
    monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Where the terminal is gone, or hangs, nothing can be reported any more; the command must not hang for that."""
    codes: list[int] = []

    def say(*_: object, **__: object) -> None:
        if gone:
            raise OSError("the terminal is gone")
        time.sleep(30)

    monkeypatch.setattr(main, "say", say)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(os, "_exit", codes.append)
    begun = time.monotonic()
    main._end_late(session.Session(), None)
    assert codes == [130]
    assert time.monotonic() - begun < 5


def test_threads_that_do_not_end_are_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(main, "SAYING", 60)
    own = session.Session()
    with own.shown() as tell:
        for event in (
            StepChecking(lab="lab", step="volumes"),
            StepStarted(lab="lab", step="boot node-1"),
            StepChecking(lab="lab", step="seed"),
            StepSkipped(lab="lab", step="seed"),
        ):
            tell(event)
        main._end_late(own, None)
    said = capfd.readouterr().err
    assert "ended without what did not stop" in said
    assert "running:  Machines, and what these steps began in them: volumes, boot node-1\n" in said
    assert "cure:" in said
    assert codes == [130]


def test_a_handled_signal_is_not_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    told = threading.Event()

    def work() -> None:
        with signals.as_interrupts(told.set):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                time.sleep(0.2)  # the clean-up takes longer than an unheard signal is waited for

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not told.is_set()


def test_a_clean_up_ends_before_the_command_is_ended() -> None:
    """What was begun last may use all of its time: a program that is asked to end, a call that undoes something."""
    assert stopping.LOOK + stopping.CLEAN_UP + stopping.LOOK < signals.WHOLE
    assert signals.PATIENCE < signals.WHOLE


def test_a_lost_terminal_is_not_written_to() -> None:
    """Otherwise the message about the interrupt would fail itself."""
    master, slave = pty.openpty()
    try:
        signals._leave([slave])
        os.close(master)
        assert os.write(slave, b"into the void") == 13
    finally:
        os.close(slave)
