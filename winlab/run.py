"""The one module that starts processes.

Everything else in winlab calls :func:`run`, :func:`watched`, :func:`head`, :func:`stream`, :func:`beside`,
:func:`start` or :func:`replace`, so that tests can forbid all of them at once. A failed command is thus always shown in
a form that can be pasted into a shell.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import selectors
import shlex
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

from winlab import stopping
from winlab.errors import HostError, WinlabError

TAIL = 20  # lines of a failed command's output that an error shows
LONG = 400  # characters of its command line
MOST = 256 << 20  # bytes that a watched command may print
ERRORS = 1 << 20  # bytes that it may print as errors
LOOK = 0.25  # seconds between two checks whether it should end
BLOCK = 1 << 16
KEPT = 200  # lines of a long command's output that an error may show


@dataclass(frozen=True)
class Result:
    """The result of a finished command: its exit code, both streams, and how long it took (seconds)."""

    args: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class CommandError(WinlabError):
    """A command ended with a code other than 0."""

    def __init__(self, result: Result, cure: str = "") -> None:
        tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-TAIL:])
        line = shlex.join(result.args)
        if len(line) > LONG:
            line = f"{line[:LONG]} ..."
        super().__init__(
            f"'{line}' ended with exit code {result.returncode} after {result.seconds:.0f} s.",
            why=tail or "It printed nothing.",
            cure=cure,
        )
        self.result = result


class OverdueError(HostError):
    """A command was killed because it exceeded its time limit."""


class FloodError(HostError):
    """A command was ended because it printed too much."""


class DamagedError(HostError):
    """A program is there, and the system can't start it."""


def search_path() -> str:
    """PATH and the sbin folders. Some PATHs lack those: plain users' on Debian, and sudo's on some hosts."""
    return os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def find(program: str) -> str | None:
    """The path of a program, looked for in :func:`search_path`; None if there is none."""
    return shutil.which(program, path=search_path())


def _resolve(args: Sequence[str | Path], cure: str) -> list[str]:
    words = [str(arg) for arg in args]
    program = find(words[0])
    if program is None:
        raise HostError(
            f"The program '{words[0]}' is not installed.",
            cure=cure or "Run 'winlab doctor'; it names the package of every program that is missing.",
        )
    return [program, *words[1:]]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """This process's variables and *more*.

    Programs are set to English, because winlab parses their output. They look for the programs that they call
    (``mke2fs``, ``ovsdb-server``) in the same folders as winlab.
    """
    return {**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8", "LANGUAGE": "", **(more or {})}


def run(
    args: Sequence[str | Path],
    *,
    check: bool = True,
    stdin: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cure: str = "",
) -> Result:
    """Run a command to its end and return its result; it is ended when the work is asked to stop.

    :param check: raise :class:`CommandError` if the exit code is not 0.
    :param timeout: seconds after which the command is killed.
    :param env: variables added to this process's own.
    :raises HostError: the program is not installed, or took longer than *timeout* (:class:`OverdueError`).
    :raises Stopped: the work was asked to stop.
    """
    words, begun = _resolve(args, cure), time.monotonic()
    variables = _environment(env)
    code, out, err, _ = _watch(words, (stdin or "").encode(), timeout, variables, sys.maxsize, cwd=cwd, cure=cure)
    result = Result(tuple(words), code, _text(out), _text(err), _since(begun))
    if check and result.returncode != 0:
        raise CommandError(result, cure)
    return result


def watched(
    args: Sequence[str | Path],
    *,
    stdin: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    most: int = MOST,
    inherit: bool = True,
) -> Result:
    """Run a command that passes on what a cluster or file says; it is ended when the work is asked to stop.

    :param timeout: seconds after which the command is ended.
    :param env: variables added to this process's own.
    :param most: bytes that it may print.
    :param inherit: give it this process's variables; otherwise it gets only those in *env*.
    :raises CommandError: its exit code is not 0.
    :raises HostError: the program is not installed, took too long (:class:`OverdueError`), or printed too much
        (:class:`FloodError`).
    :raises Stopped: the work was asked to stop.
    """
    words, begun = _resolve(args, ""), time.monotonic()
    variables = _environment(env) if inherit else (env or {})
    code, out, err, flooded = _watch(words, (stdin or "").encode(), timeout, variables, most)
    if flooded:
        raise FloodError(f"'{shlex.join(words)[:LONG]}' printed more than {most >> 20} MiB.", why="It was ended.")
    result = Result(tuple(words), code, _text(out), _text(err), _since(begun))
    if code != 0:
        raise CommandError(result)
    return result


def head(args: Sequence[str | Path], most: int, timeout: float) -> bytes | None:
    """The first *most* bytes that a command prints; None if it fails. It is ended when it prints more.

    :param timeout: seconds after which the command is ended.
    :raises HostError: the program is not installed, or took too long (:class:`OverdueError`).
    :raises Stopped: the work was asked to stop.
    """
    code, out, _, flooded = _watch(_resolve(args, ""), b"", timeout, _environment(None), most)
    return out if flooded or code == 0 else None


@contextmanager
def _startable(words: list[str], cure: str) -> Iterator[None]:
    """Explain why a program can't be started: damaged, made for another machine, or not executable."""
    try:
        yield
    except OSError as error:
        raise DamagedError(
            f"'{words[0]}' can't be started.",
            why=error.strerror or str(error),
            cure=cure or "Install it again, and check the disk.",
            causes=[error],
        ) from error


def _watch(
    words: list[str],
    stdin: bytes,
    timeout: float | None,
    env: Mapping[str, str],
    most: int,
    *,
    cwd: Path | None = None,
    cure: str = "",
) -> tuple[int, bytes, bytes, bool]:
    """The exit code of a command, the beginning of both streams, and whether it was ended for too much output."""
    patience, begun = stopping.Patience(), time.monotonic()

    def check() -> None:
        patience.check()
        if timeout is not None and _since(begun) > timeout:
            raise OverdueError(f"'{shlex.join(words)[:LONG]}' did not end within {timeout:.0f} s.", cure=cure)

    pipe = subprocess.PIPE
    with _startable(words, cure):
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd)
    with process:
        try:
            out, err = _talk(process, stdin, most, check)
            if flooded := len(out) > most:
                process.kill()
            return _await(process, check), bytes(out[:most]), bytes(err), flooded
        except BaseException:
            process.kill()
            raise


def _talk(
    process: subprocess.Popen[bytes], stdin: bytes, most: int, check: Callable[[], None]
) -> tuple[bytearray, bytearray]:
    """Give a process its input and take what it prints: all of it, or a little more than *most* bytes."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err, rest = bytearray(), bytearray(), memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        while selector.get_map() and len(out) <= most:
            check()
            for key, _ in selector.select(LOOK):
                if key.data is None:
                    rest = _give(key.fd, rest)
                    if not rest:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                piece = os.read(key.fd, BLOCK)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.data is out or len(err) < ERRORS:
                    key.data.extend(piece)
    return out, err


def _give(handle: int, rest: memoryview) -> memoryview:
    """Write what the pipe takes, and return the rest; nothing if the pipe has no reader."""
    try:
        return rest[os.write(handle, rest[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return rest[:0]


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\r\n", "\n")


def _since(begun: float) -> float:
    return time.monotonic() - begun


def stream(
    args: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cure: str = "",
) -> Result:
    """Run a long command and pass each line of its output (both streams) to *on_line* as it comes.

    The command is asked to end, and may clean up, if *on_line* raises, the user interrupts, or the work is asked to
    stop; also if it prints nothing for long.

    :raises CommandError: its exit code is not 0.
    :raises HostError: the program is not installed.
    :raises Stopped: the work was asked to stop.
    """
    words, begun = _resolve(args, cure), time.monotonic()
    kept: deque[str] = deque(maxlen=KEPT)
    patience = stopping.Patience()
    out = subprocess.PIPE
    with _startable(words, cure):
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=_environment(env), cwd=cwd
        )
    with process:
        try:
            for line in _lines(process, patience.check):
                kept.append(line)
                on_line(line)
            code = _await(process, patience.check)
        except BaseException:
            _end(process)
            raise
    result = Result(tuple(words), code, "\n".join(kept), "", _since(begun))
    if result.returncode != 0:
        raise CommandError(result, cure)
    return result


def _lines(process: subprocess.Popen[bytes], check: Callable[[], None]) -> Iterator[str]:
    """The lines that a process prints, without their ends. A progress bar's carriage return ends one, too."""
    assert process.stdout is not None
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    rest = ""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            check()
            if not selector.select(LOOK):
                continue
            piece = os.read(process.stdout.fileno(), BLOCK)
            *whole, rest = (rest + decoder.decode(piece, final=not piece)).split("\n")
            yield from whole
            if not piece:
                break
    if rest:
        yield rest


def _await(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int:
    """The exit code of a process."""
    while True:
        try:
            return process.wait(LOOK)
        except subprocess.TimeoutExpired:
            check()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, which has a few seconds to clean up."""
    process.terminate()
    try:
        process.wait(stopping.CLEAN_UP)
    except subprocess.TimeoutExpired:
        process.kill()


def start(args: Sequence[str | Path], *, log: Path | None = None) -> int:
    """Start a program that outlives winlab (a daemon, a viewer); returns its process id."""
    words = _resolve(args, "")
    sink = log.open("ab") if log else subprocess.DEVNULL
    null = subprocess.DEVNULL
    try:
        with _startable(words, ""):
            return subprocess.Popen(words, stdin=null, stdout=sink, stderr=sink, start_new_session=True).pid
    finally:
        if not isinstance(sink, int):
            sink.close()


@contextmanager
def beside(args: Sequence[str | Path]) -> Iterator[Callable[[], str | None]]:
    """Run a program for the length of a with-block, which gets a function: None while the program runs.

    After the program has ended, the function returns the last lines of its errors.

    :raises HostError: it is not installed, or can't be started.
    """
    words = _resolve(args, "")
    null = subprocess.DEVNULL
    with TemporaryFile() as errors:
        with _startable(words, ""):
            process = subprocess.Popen(words, stdin=null, stdout=null, stderr=errors, env=_environment(None))

        def ended() -> str | None:
            if process.poll() is None:
                return None
            errors.seek(0)
            return "\n".join(_text(errors.read(ERRORS)).strip().splitlines()[-TAIL:])

        try:
            yield ended
        finally:
            _end(process)


def replace(args: Sequence[str | Path]) -> NoReturn:
    """Replace this process with a program that needs the terminal (ssh)."""
    words = _resolve(args, "")
    with _startable(words, ""):
        os.execv(words[0], words)
    raise AssertionError("execv returned")


def windows_line(words: Sequence[str]) -> str:
    """The words of a command as one line, as Windows programs split it (the C runtime's rules). Starts nothing."""
    return subprocess.list2cmdline(words)
