"""One process of the PowerShell engine that runs script after script: an emulated CPU takes seconds to start one.

It runs ``doubles/resident.ps1``. The first script that needs it starts it. It runs one script at a time. Another script
meanwhile gets its own process, and so does every script if the resident engine is missing. The caller has a lock, which
is released when the caller ends. If the caller cancels a script, or goes away, the engine is killed with everything
that it has started. It ends by itself after some idle minutes.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import io
import json
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from winlab_standin.guest.base import feed, start
from winlab_standin.guest.report import write_port

SCRIPT = Path(__file__).parent / "doubles/resident.ps1"
IDLE = 300  # seconds after which it ends: it has 100 MB or more
BREAK = 0.1  # seconds between two checks whether it has started
LEAVING = 5.0  # seconds in which it must end after it has closed the connection
PART = 1 << 16
# Writes the exit code of what it runs into a file: the process that started the engine may have ended
WITH_CODE = 'cd /; "$@"; echo $? >"$0"'
Writer = Callable[[str], None]
Check = Callable[[], None]


class Resident:
    """The resident engine whose files are in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket, self._group = folder / "socket", folder / "group"
        self._code, self._log = folder / "code", folder / "log"

    def converse(
        self,
        args: Sequence[str | Path],
        read: Callable[[], str],
        out: Writer,
        err: Writer,
        check: Check,
        *,
        env: Mapping[str, str],
    ) -> int | None:
        """Do what :func:`base.converse` does, in this process; None if the script did not run: it needs a new one."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            try:
                # an engine that is about to end may accept the request, and not begin
                for _ in range(2):
                    caller = self._connect() or self._start(args[0], check, env)
                    if caller is None:
                        return None
                    with caller, _pipes() as pipes:
                        if _begin(caller, args[1:], pipes, check, env):
                            threading.Thread(target=feed, args=(pipes.feed(), read), daemon=True).start()
                            answer = pipes.hear(caller, out, err, check)
                            return int(answer) if answer else self._own_code()
                return None
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """End it, with everything that it has started."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            group = int(self._group.read_text())
            self._group.unlink()
            # another process may have its id by now
            if os.fsencode(self._code) in Path(f"/proc/{group}/cmdline").read_bytes().split(b"\0"):
                os.killpg(group, signal.SIGKILL)

    def _connect(self) -> socket.socket | None:
        """A connection; None if there is no engine that listens."""
        caller = socket.socket(socket.AF_UNIX)
        try:
            caller.connect(str(self._socket))
        except OSError:
            caller.close()
            return None
        return caller

    def _start(self, engine: str | Path, check: Check, env: Mapping[str, str]) -> socket.socket | None:
        """Start it; a connection once it listens, None if it does not."""
        self.end()
        self._socket.unlink(missing_ok=True)
        self._code.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        words = [engine, "-NoProfile", "-NonInteractive", "-File", SCRIPT, self._socket, str(IDLE)]
        plain = {name: value for name, value in env.items() if not name.startswith("WINLAB_")}
        group = start(["/bin/sh", "-c", WITH_CODE, self._code, *words], log=self._log, env=plain)
        self._group.write_text(str(group))
        while not (caller := self._connect()):
            if self._code.exists():
                said = " ".join(self._log.read_text(errors="replace").split())
                write_port(f"setup: bug: the resident PowerShell engine does not start: {said}\r\n")
                return None
            check()
            time.sleep(BREAK)
        return caller

    def _own_code(self) -> int:
        """The exit code of the engine, which has ended with the script; as for a process, negative after a signal."""
        until = time.monotonic() + LEAVING
        while not (self._code.exists() and (said := self._code.read_text())):
            if time.monotonic() > until:
                self.end()
                return -signal.SIGKILL
            time.sleep(BREAK)
        code = int(said)
        return 128 - code if code > 128 else code


class _Lines:
    """Passes on the lines that come from a pipe, as Python's text files have them."""

    def __init__(self, pipe: int, write: Writer) -> None:
        self.pipe = pipe
        self._write = write
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._rest = ""
        self.closed = False  # no one writes any more

    def more(self) -> bool:
        """Read what has arrived; returns whether there was something."""
        try:
            part = os.read(self.pipe, PART)
        except BlockingIOError:
            return False
        self.closed = not part
        *lines, self._rest = (self._rest + self._decoder.decode(part)).split("\n")
        for line in lines:
            self._write(f"{line}\r\n")
        return bool(part)

    def end(self) -> None:
        """Read everything that has arrived; the last line may have no end."""
        while self.more():
            pass
        self._rest += self._decoder.decode(b"", final=True)
        if self._rest:
            self._write(f"{self._rest.removesuffix(chr(10))}\r\n")


class _Pipes:
    """The three standard streams of a script."""

    def __init__(self) -> None:
        (self._theirs, ours), (out, self._out), (err, self._err) = os.pipe(), os.pipe(), os.pipe()
        self._ours: dict[str, int] = {"in": ours, "out": out, "err": err}
        for pipe in (out, err):
            os.set_blocking(pipe, False)

    @property
    def files(self) -> list[str]:
        """Where the engine finds its ends."""
        return [f"/proc/{os.getpid()}/fd/{number}" for number in (self._theirs, self._out, self._err)]

    def given(self) -> None:
        """Close the engine's ends here, once the engine has opened them."""
        for number in (self._theirs, self._out, self._err):
            os.close(number)
        self._theirs = self._out = self._err = -1

    def feed(self) -> IO[str]:
        """The input, for the caller to write and close."""
        return os.fdopen(self._ours.pop("in"), "w", encoding="utf-8", errors="replace")

    def hear(self, caller: socket.socket, out: Writer, err: Writer, check: Check) -> bytes:
        """Pass on what the script writes until the engine answers; returns the answer, empty if the engine ended."""
        streams = [_Lines(self._ours["out"], out), _Lines(self._ours["err"], err)]
        with selectors.DefaultSelector() as selector:
            selector.register(caller, selectors.EVENT_READ)
            for lines in streams:
                selector.register(lines.pipe, selectors.EVENT_READ, lines)
            while True:
                ready = selector.select(1)
                if not ready:
                    check()
                for key, _ in ready:
                    if key.data:
                        key.data.more()
                        if key.data.closed:
                            selector.unregister(key.fileobj)
                if any(key.fileobj is caller for key, _ in ready):
                    break
        for lines in streams:  # everything that the script has written has arrived by now
            lines.end()
        with contextlib.suppress(ConnectionError):
            return caller.recv(64)
        return b""

    def close(self) -> None:
        """Close what is still open."""
        for number in (*self._ours.values(), self._theirs, self._out, self._err):
            if number >= 0:
                os.close(number)


@contextmanager
def _pipes() -> Iterator[_Pipes]:
    made = _Pipes()
    try:
        yield made
    finally:
        made.close()


def _begin(
    caller: socket.socket, words: Sequence[str | Path], pipes: _Pipes, check: Check, env: Mapping[str, str]
) -> bool:
    """Request a script; returns whether the engine has begun it."""
    request = {
        "words": [str(word) for word in words],
        "environment": dict(env),
        "folder": str(Path.cwd()),
        "streams": pipes.files,
    }
    caller.settimeout(1)
    try:
        caller.sendall(json.dumps(request).encode() + b"\n")
        while True:
            try:
                begun = caller.recv(len(b"begun\n"))
                break
            except TimeoutError:
                check()
    except ConnectionError:
        return False
    pipes.given()
    return begun == b"begun\n"
