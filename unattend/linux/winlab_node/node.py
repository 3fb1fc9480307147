"""The node: its files below a root, how commands are run in it, and winlab's records in it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess  # noqa: TID251 - this runs in guests, where there is no winlab
import sys
from pathlib import Path

TYPE_CHECKING = False  # instead of typing's, which is slow to load on an emulated CPU
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Settings = dict[str, Any]
    Ended = tuple[int, str]  # a command's exit code and its output

PROGRAMS, PLUGINS, NETWORKS = "usr/local/bin", "opt/cni/bin", "etc/cni/net.d"
ORIGINAL = ".winlab-original"  # suffix of the name under which ``push`` keeps a program


class NodeError(Exception):
    """A message for winlab's user."""


def run(command: list[str], text: str = "", heard: Callable[[str], None] | None = None) -> Ended:
    """Run a command with *text* as input. Returns its exit code and both outputs; *heard* gets each line, too."""
    pipe = subprocess.PIPE
    merged = subprocess.STDOUT
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=merged, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(text)
            process.stdin.close()
        lines = []
        for line in process.stdout:
            lines.append(line)
            if heard is not None:
                heard(line.rstrip("\n"))
        return process.wait(), "".join(lines)


def is_pushed(program: Path) -> bool:
    """Whether ``push`` has replaced a program.

    If push was killed before it did, the original is the same file under a second name.
    """
    original = program.with_name(program.name + ORIGINAL)
    return original.exists() and not (program.exists() and original.samefile(program))


def say(text: str) -> None:
    """Report progress to winlab. If winlab was killed, the work continues, and the next winlab waits for its end."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for all later output, even at Python's exit


class Node:
    """The node's file system below *root*, and how commands are run in it."""

    def __init__(self, root: Path = Path("/"), runner: Callable[..., Ended] = run) -> None:
        self.root = root
        self._runner = runner

    def path(self, name: str) -> Path:
        """A path of the node."""
        return self.root / name.lstrip("/")

    def call(self, *command: str, text: str = "", fine: tuple[int, ...] = (0,)) -> str:
        """Run a command and return its output.

        :raises NodeError: it failed.
        """
        code, output = self._runner(list(command), text)
        if code not in fine:
            told = "\n".join(output.splitlines()[-8:])
            raise NodeError(f"'{' '.join(command[:3])}' ended with exit code {code}: {told}")
        return output

    def follow(self, command: list[str], heard: Callable[[str], None]) -> int:
        """Run a command, report its output line by line, and return its exit code."""
        return self._runner(command, "", heard)[0]

    def has(self, name: str, content: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> bool:
        """Whether a file is as :meth:`write` with the same arguments leaves it."""
        path = self.path(name)
        with contextlib.suppress(OSError):
            stat = path.stat()
            same = stat.st_mode & 0o7777 == mode and owner in (None, (stat.st_uid, stat.st_gid))
            return same and path.read_bytes() == content.encode()
        return False

    def write(self, name: str, content: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> bool:
        """Write a file, completely or not at all, even if the power fails. Returns whether something changed.

        *owner* is the user and the group, by number; without it, those of this process.
        """
        if self.has(name, content, mode, owner):
            return False
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.winlab-new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)  # after the owner, whose change may clear bits
            file.write(content.encode())
            file.flush()
            os.fsync(file.fileno())  # otherwise a new name may have an empty file after a power cut
        new.replace(path)
        return True

    def note(self, name: str, default: Any) -> Any:
        """What winlab recorded in this node before."""
        try:
            return json.loads(self.path(f"var/lib/winlab/{name}.json").read_text())
        except (OSError, ValueError):
            return default

    def keep(self, name: str, value: Any) -> None:
        """Record something for a later run: safely on disk, and only after everything written so far."""
        os.sync()
        self.write(f"var/lib/winlab/{name}.json", json.dumps(value))
        folder = os.open(self.path("var/lib/winlab"), os.O_RDONLY)
        try:
            os.fsync(folder)  # its new name
        finally:
            os.close(folder)
