"""What all modules of the guest use: the stand-in's errors, and how it starts programs.

winlab has the same for the host (``winlab.errors``, ``winlab.run``). The guest has its own, so that no part of winlab
is on the media, and a change in winlab makes no new media.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TAIL = 20  # lines of a failed program's output that an error shows
LONG = 400  # characters of its command line


class StandinError(Exception):
    """The stand-in can't continue: what happened, and why."""

    def __init__(self, what: str, *, why: str = "") -> None:
        super().__init__(f"{what}\n  why: {why}" if why else what)


@dataclass(frozen=True)
class Result:
    """What a finished program left: its exit code, both streams, and how long it took (seconds)."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


class CommandError(StandinError):
    """A program ended with a code other than 0."""

    def __init__(self, words: Sequence[str], result: Result) -> None:
        tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-TAIL:])
        line = shlex.join(words)
        if len(line) > LONG:
            line = f"{line[:LONG]} ..."
        what = f"'{line}' ended with exit code {result.returncode} after {result.seconds:.0f} s."
        super().__init__(what, why=tail or "It printed nothing.")


def _words(args: Sequence[str | Path]) -> list[str]:
    words = [str(arg) for arg in args]
    program = shutil.which(words[0], path=os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin")
    if program is None:
        raise StandinError(f"The program '{words[0]}' is not installed.")
    return [program, *words[1:]]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """This process's variables and *more*; programs print English, because their output is parsed."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "", **(more or {})}


def run(
    args: Sequence[str | Path],
    *,
    check: bool = True,
    stdin: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a program to its end.

    :param check: raise :class:`CommandError` if the exit code is not 0.
    :param timeout: seconds, after which the program is killed.
    :param env: variables added to this process's own.
    :raises StandinError: the program is not installed, or took longer than *timeout*.
    """
    words = _words(args)
    begun = time.monotonic()
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=_environment(env),
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StandinError(f"'{shlex.join(words)}' did not end within {timeout:.0f} s.") from error
    result = Result(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)
    if check and result.returncode != 0:
        raise CommandError(words, result)
    return result


def stream(
    args: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> int:
    """Run a long program and pass every line of both streams to *on_line* at once; returns its exit code.

    The program is ended if *on_line* raises.

    :raises StandinError: the program is not installed.
    """
    with subprocess.Popen(
        _words(args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(env),
        cwd=cwd,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                on_line(line.rstrip("\n"))
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def start(args: Sequence[str | Path], *, log: Path | None = None, env: Mapping[str, str] | None = None) -> int:
    """Start a program that keeps running, in its own process group; returns its process id.

    :param env: all of its variables; without it, this process's.
    :raises StandinError: the program is not installed.
    """
    words = _words(args)
    sink = log.open("ab") if log else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=None if env is None else dict(env),
            start_new_session=True,
        ).pid
    finally:
        if not isinstance(sink, int):
            sink.close()


def converse(
    args: Sequence[str | Path],
    read: Callable[[], str],
    out: Callable[[str], None],
    err: Callable[[str], None],
    check: Callable[[], None],
    *,
    env: Mapping[str, str],
) -> int:
    """Run a program with input and both streams, line by line with Windows' line ends. Returns its exit code, or the
    negative number of the signal that ended it.

    This does not wait for *read*: input may come late, or never. *check* is called each second; if it or a writer
    raises, the program is ended, with everything that it has started.

    :param env: all of its variables.
    """
    with subprocess.Popen(
        [str(word) for word in args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=dict(env),
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        lines: queue.SimpleQueue[tuple[Callable[[str], None], str | None]] = queue.SimpleQueue()
        for pipe, write in ((process.stdout, out), (process.stderr, err)):
            assert pipe is not None
            threading.Thread(target=_hear, args=(pipe, write, lines), daemon=True).start()
        threading.Thread(target=feed, args=(process.stdin, read), daemon=True).start()
        try:
            still = 2
            while still:
                try:
                    write, line = lines.get(timeout=1)
                except queue.Empty:
                    check()
                    continue
                if line is None:
                    still -= 1
                else:
                    write(f"{line}\r\n")
            return process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def feed(pipe: IO[str], read: Callable[[], str]) -> None:
    """Give a program its input, as long as it reads it."""
    with contextlib.suppress(OSError, ValueError), pipe:
        pipe.write(read())


def _hear(pipe: IO[str], write: Callable[[str], None], lines: queue.SimpleQueue[Any]) -> None:
    for line in pipe:
        lines.put((write, line.rstrip("\n")))
    lines.put((write, None))
