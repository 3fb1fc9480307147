"""A node as the cluster's steps see it: scripts that are run in the guest, with settings in and a result out.

The scripts are the package unattend/linux/winlab_node and unattend/windows/worker/*.ps1; contract.py has what each
is called, its settings and its result. The settings go in on the standard input, so that nothing secret is ever a
process's argument; the result is one line of JSON, the last that the script prints. What it prints before that is shown
as progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from winlab.adapters.guests import base, node_program
from winlab.adapters.guests.connect import connect
from winlab.design.contract import Call, R
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError, WinlabError
from winlab.lab_folder import LabFolder

DRIVES = "D E F G H I J"
TOLD = 12  # lines of a script's errors that are worth repeating
TRIES, PAUSE = 20, 1.5  # seconds, for a CD that was just put in
NO_FILE = 0xFFFD0000  # what powershell.exe ends with when the file of -File is not there
Heard = Callable[[str], None]


class Lines:
    """Puts the pieces of a stream together to lines and hands each on."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._rest = b""
        self.kept: list[str] = []

    def __call__(self, piece: bytes) -> None:
        """Take the next piece."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            self._take(line)

    def end(self) -> None:
        """Take what came without an end of line."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""

    def _take(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        if line:
            self.kept = [*self.kept[-199:], line]
            self._heard(line)


class NodeScripts:
    """One node, logged in to when first asked; a context manager that logs out."""

    def __init__(self, tag: Tag, folder: LabFolder) -> None:
        self.tag = tag
        self._folder = folder
        self._guest: base.Guest | None = None
        self._place = ""  # where the scripts are in this guest

    def __enter__(self) -> NodeScripts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Log out; the next script logs in again."""
        guest, self._guest, self._place = self._guest, None, ""
        if guest is not None:
            with suppress(WinlabError):
                guest.close()

    def run(self, call: Call[R], heard: Heard = lambda _line: None) -> R:
        """Run a script of winlab in the node; its result.

        :param heard: called with each line that the script prints, the result left out.
        :raises UnreachableError: the node can't be reached, or the connection was lost.
        :raises GuestError: the script failed, and the message repeats what it said; or its result is not as the
            contract has it.
        """
        try:
            told = self._run(call.script, call.settings(self.tag.os), heard)
        except UnreachableError:
            self.disconnect()
            raise
        return call.read(told, self.tag.node)

    def execute(self, command: list[str], stdin: bytes = b"") -> str:
        """Run a command in the node; what it printed.

        :raises GuestError: it failed.
        """
        out, err = Lines(_ignore), Lines(_ignore)
        code = self._connected().execute(command, out, err, stdin)
        out.end()
        err.end()
        if code != 0:
            raise GuestError(
                f"A command in '{self.tag.node}' ended with exit code {code}.",
                why="\n".join((err.kept or out.kept)[-TOLD:]) or "It printed nothing.",
                evidence=f"the command: {base.command_line(self.tag.os, command)[:200]}",
            )
        return "\n".join(out.kept)

    def _run(self, script: str, settings: Mapping[str, object], heard: Heard) -> dict[str, Any]:
        for attempt in range(TRIES):
            try:
                return self._try(script, settings, heard)
            except _NoScriptError as error:
                # a CD that was just put in may vanish once more for a moment, or come under another letter
                self._place = ""
                if attempt == TRIES - 1:
                    raise error.error from error
                time.sleep(PAUSE)
        raise AssertionError("the last try returns or raises")

    def _try(self, script: str, settings: Mapping[str, object], heard: Heard) -> dict[str, Any]:
        guest = self._connected()
        if not self._place:
            self._place = self._bring_scripts() if self.tag.os == "linux" else self._find_drive()
        pending: list[str] = []

        def hear(line: str) -> None:
            if pending:
                heard(pending.pop())
            if line.startswith("{"):
                pending.append(line)  # the result, if it is the last
            else:
                heard(line)

        out, err = Lines(hear), Lines(heard)
        code = guest.execute(self._command(script), out, err, json.dumps(settings).encode())
        out.end()
        err.end()
        if code != 0:
            for line in pending:
                heard(line)
            error = GuestError(
                f"'{script}' failed in '{self.tag.node}'.",
                why="\n".join((err.kept or out.kept)[-TOLD:]) or f"It ended with exit code {code} and printed nothing.",
                cure="Run the same command again, it carries on there; 'winlab logs' shows more.",
                evidence=f"winlab logs {self.tag.node}",
            )
            raise _NoScriptError(error) if code & 0xFFFFFFFF == NO_FILE and self.tag.os == "windows" else error
        try:
            result = json.loads(pending[0])
        except (IndexError, ValueError) as error:
            raise GuestError(
                f"'{script}' in '{self.tag.node}' ended without a result.", why="\n".join(out.kept[-TOLD:])
            ) from error
        if not isinstance(result, dict):
            raise GuestError(f"'{script}' in '{self.tag.node}' gave no result.", why=pending[0])
        return result

    def _connected(self) -> base.Guest:
        if self._guest is None:
            self._guest = connect(self.tag, self._folder)
        return self._guest

    def _command(self, script: str) -> list[str]:
        if self.tag.os == "linux":
            return ["sudo", "python3", self._place, script]
        flags = ["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass"]
        return ["powershell.exe", *flags, "-File", f"{self._place}\\scripts\\{script}.ps1"]

    def _bring_scripts(self) -> str:
        """Put the program for Linux nodes into the guest; its path there."""
        path, program = "/run/winlab/node.pyz", node_program.build()
        self.execute(["sudo", "sh", "-c", f"mkdir -p /run/winlab && cat >{path}.new && mv {path}.new {path}"], program)
        return path

    def _find_drive(self) -> str:
        """The drive of the payload CD: ``D:``.

        :raises GuestError: no drive has it.
        """
        # a CD that was just put in takes Windows some seconds to see
        for _ in range(TRIES):
            found = self.execute([f"cmd.exe /c for %d in ({DRIVES}) do @if exist %d:\\payload.json echo %d:"]).split()
            if found:
                return found[0]
            time.sleep(PAUSE)
        raise GuestError(
            f"'{self.tag.node}' does not see winlab's payload CD.",
            cure="Run the same command again: it puts the CD into the drive anew.",
        )


class _NoScriptError(Exception):
    """PowerShell did not find the script where the CD was a moment ago."""

    def __init__(self, error: GuestError) -> None:
        super().__init__(str(error))
        self.error = error


def _ignore(_line: str) -> None:
    pass
