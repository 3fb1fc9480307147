"""Runs winlab's scripts in a node: settings go in, a result comes out.

The scripts are the package unattend/linux/winlab_node and unattend/windows/worker/*.ps1; winlab/design/contract has
each one's name, settings and result. The settings go in on the standard input, so that no secret is ever a process's
argument. The result is one line of JSON, the last that the script prints. Earlier lines are shown as progress.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from winlab import documents, stopping
from winlab.adapters.guests import base, systems
from winlab.adapters.guests.connect import change, connect
from winlab.adapters.guests.silence import Silence
from winlab.design.contract.call import WORK, Call, R
from winlab.design.plan import facts
from winlab.design.plan.tags import Tag
from winlab.errors import GuestCommandError, GuestError, SilentError, UnreachableError, WinlabError, logs
from winlab.events import NodeTransport
from winlab.lab_folder import LabFolder

TOLD = 12  # lines of a script's errors that an error message repeats
SHOWN = 2000  # characters of each
KEPT = 200  # lines of its output that are kept
LINE = 64 << 10  # bytes of a line that are kept and passed on
RESULT = 32 << 20  # bytes that a script's result may have, such as the logs of a node
Heard = Callable[[str], None]


class Lines:
    """Splits a stream into lines and passes each on. A node decides what it sends: a line may never end.

    :param longest: bytes of a line that are passed on; the rest of it is dropped.
    """

    def __init__(self, heard: Heard, longest: int = LINE) -> None:
        self._heard = heard
        self._longest = longest
        self._line = bytearray()
        self.kept: deque[str] = deque(maxlen=KEPT)  # the last ones, each cut at LINE

    def __call__(self, piece: bytes) -> None:
        """Take the next piece."""
        first, *others = piece.split(b"\n")
        self._add(first)
        for begin in others:
            self.end()
            self._add(begin)

    def end(self) -> None:
        """Pass on the current line, even if it is the last one and has no line feed."""
        line = self._line.decode(errors="replace").rstrip()
        self._line.clear()
        if line:
            self.kept.append(line[:LINE])
            self._heard(line)

    def _add(self, part: bytes) -> None:
        self._line += part[: self._longest - len(self._line)]


class NodeScripts:
    """A login to one node, made when it is first needed; a context manager that logs out.

    :param scale: how much slower than on hardware the node runs: it may be silent for that much longer.
    :param log_in: how to log in; by default as the node's system does (:func:`winlab.adapters.guests.connect.connect`).
    """

    def __init__(
        self, tag: Tag, folder: LabFolder, scale: float, log_in: Callable[[], base.Guest] | None = None
    ) -> None:
        self.tag = tag
        self.scale = scale
        self.tell: Callable[[NodeTransport], None] | None = None  # receives that winlab uses another transport
        self._log_in = log_in
        self._folder = folder
        self._guest: base.Guest | None = None
        self._place = ""  # where the scripts are in this guest
        self._ways = systems.ways(tag.system)

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
        """Run one of winlab's scripts in the node; returns its result.

        :param heard: called with each line that the script prints, except for the result; and while it is silent.
        :raises UnreachableError: the node can't be reached, or the connection was lost.
        :raises SilentError: the script was silent for longer than the contract allows.
        :raises GuestError: the script failed, and the message repeats its errors; or its result does not match the
            contract.
        """
        try:
            told = self._run(call.script, call.settings(self.tag.os), heard, call.silence)
        except (UnreachableError, SilentError):
            self.disconnect()  # with its shell, what still runs on Windows ends
            raise
        return call.read(told, self.tag.node, self.tag.lab)

    def execute(self, command: list[str], stdin: bytes = b"", silence: float = WORK) -> str:
        """Run a command in the node; returns its output.

        :param silence: for how many seconds on hardware it may be silent.
        :raises GuestCommandError: its exit code is not 0.
        :raises SilentError: it was silent for longer.
        :raises GuestError: it can't be run.
        """
        out, err = Lines(_ignore), Lines(_ignore)
        line = systems.command_line(self.tag.system, command)[:200]
        quiet = self._silence(f"A command in '{self.tag.node}'", silence, _ignore, f"the command: {line}")
        guest = self._connected()
        try:
            code = guest.execute(command, quiet.breaks(out), quiet.breaks(err), stdin, quiet.look)
        except SilentError:
            self.disconnect()
            raise
        out.end()
        err.end()
        if code != 0:
            raise GuestCommandError(
                f"A command in '{self.tag.node}' ended with exit code {code}.",
                code=code,
                why=_last(err, out) or "It printed nothing.",
                evidence=f"the command: {line}",
            )
        return "\n".join(out.kept)

    def sees(self, file: str, *, there: bool) -> bool:
        """Whether the node has noticed that the CD with *file* was inserted (*there*) or removed.

        :param file: its path on the CD: ``push/kubelet.exe``.
        :raises GuestError: the node can't be asked.
        """
        return self._ways.sees(self.execute, file, there=there)

    def _silence(self, what: str, limit: float, tell: Heard, evidence: str) -> Silence:
        return Silence(what, facts.silence(limit, self.scale), tell, evidence)

    def _run(self, script: str, settings: Mapping[str, object], heard: Heard, limit: float) -> dict[str, Any]:
        for attempt in range(base.TRIES):
            try:
                return self._try(script, settings, heard, limit)
            except _NoScriptError as error:
                # a CD that was just inserted may disappear again for a moment, or get another drive letter
                self._place = ""
                if attempt == base.TRIES - 1:
                    raise error.error from error
                stopping.check()
                time.sleep(base.PAUSE)
        raise AssertionError("the last try returns or raises")

    def _try(self, script: str, settings: Mapping[str, object], heard: Heard, limit: float) -> dict[str, Any]:
        guest = self._connected()
        if not self._place:
            self._place = self._find_scripts()
        pending: list[str] = []

        def hear(line: str) -> None:
            if pending:
                heard(pending.pop()[:LINE])
            if line.startswith("{"):
                pending.append(line)  # the result, if it is the last
            else:
                heard(line[:LINE])

        out, err = Lines(hear, RESULT), Lines(heard)
        quiet = self._silence(f"'{script}' in '{self.tag.node}'", limit, heard, logs(self.tag.node, self.tag.lab))
        command, stdin = self._ways.command(self._place, script), json.dumps(settings).encode()
        code = guest.execute(command, quiet.breaks(out), quiet.breaks(err), stdin, quiet.look)
        out.end()
        err.end()
        if code != 0:
            for line in pending:
                heard(line[:LINE])
            error = GuestError(
                f"'{script}' failed in '{self.tag.node}'.",
                why=_last(err, out) or f"It ended with exit code {code} and printed nothing.",
                cure="Run the same command again: it continues there. 'winlab logs' shows more.",
                evidence=logs(self.tag.node, self.tag.lab),
            )
            raise _NoScriptError(error) if self._ways.is_missing(code) else error
        try:
            result = documents.from_json(pending[0])
        except (IndexError, ValueError, RecursionError) as error:
            raise GuestError(f"'{script}' in '{self.tag.node}' ended without a result.", why=_last(out)) from error
        if not isinstance(result, dict):
            raise GuestError(f"'{script}' in '{self.tag.node}' did not return an object.", why=_last(out))
        return result

    def _connected(self) -> base.Guest:
        if self._guest is None:
            self._guest = self._log_in() if self._log_in is not None else connect(self.tag, self._folder)
            if self.tell is not None and (event := change(self.tag)) is not None:
                self.tell(event)
        return self._guest

    def _find_scripts(self) -> str:
        """Where the scripts are in the guest; copies them there if its system needs that.

        :raises GuestError: they are missing.
        """
        # a guest may take some seconds to see a CD that was just inserted
        for _ in range(base.TRIES):
            if place := self._ways.place(self.execute):
                return place
            stopping.check()
            time.sleep(base.PAUSE)
        raise GuestError(
            f"'{self.tag.node}' does not see winlab's payload CD.",
            cure="Run the same command again: it inserts the CD again.",
        )


class _NoScriptError(Exception):
    """The script is not where it was a moment ago."""

    def __init__(self, error: GuestError) -> None:
        super().__init__(str(error))
        self.error = error


def _last(*streams: Lines) -> str:
    """The last lines of the first stream that has any, each cut to what a message can hold."""
    kept = next((stream.kept for stream in streams if stream.kept), ())
    return "\n".join(line[:SHOWN] for line in list(kept)[-TOLD:])


def _ignore(_line: str) -> None:
    pass
