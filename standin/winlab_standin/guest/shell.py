"""cmd.exe of the stand-in: runs command lines for WinRM, ssh and the answer file. Unknown commands fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from winlab_standin.guest import batch, cmdline
from winlab_standin.guest.cmdline import Group, Redirection, Sequence, Simple, SyntaxFault

if TYPE_CHECKING:
    from winlab_standin.guest.world import World

NOT_FOUND = 9009
LIMIT = 8191  # characters of a line that cmd.exe takes (Microsoft, "Command prompt line string limitation")
BANNER = "Microsoft Windows [Version {}]\r\n(c) Microsoft Corporation. All rights reserved.\r\n"
Writer = Callable[[str], None]


class Cancelled(Exception):
    """The caller has ended the command."""


class Leave(Exception):
    """``exit``: ends the shell with a code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass
class Streams:
    """Where a command writes, and what it reads."""

    out: Writer
    err: Writer
    read: Callable[[], str] = lambda: ""


Command = Callable[["Shell", str, Streams], int]


def _stem(name: str) -> str:
    """The name of a program without ``.exe`` or ``.com``, which are not significant."""
    return re.sub(r"\.(exe|com)$", "", name)


@dataclass(frozen=True)
class Commands:
    """What a shell can run, by names in small letters: cmd.exe's own commands, and the programs of System32."""

    builtin: Mapping[str, Command]
    programs: Mapping[str, Command]

    def find(self, name: str) -> Command | None:
        """The command *name* (small letters, without folder); None if there is none."""
        if _stem(name) != name:
            return self.program(name)
        return self.builtin.get(name) or self.program(name)

    def program(self, name: str) -> Command | None:
        """The program *name*, which can be started without cmd.exe; None if there is none."""
        return self.programs.get(_stem(name))


@dataclass
class Shell:
    """One cmd.exe: the commands it knows, variables, the current folder, the last exit code.

    *alone*: each of its PowerShell scripts gets its own process, as on Windows.
    """

    world: World
    commands: Commands
    variables: dict[str, str] = field(default_factory=dict)
    cwd: str = "C:\\Users\\Administrator"
    code: int = 0
    cancelled: Callable[[], bool] = lambda: False
    alone: bool = False

    def run(self, line: str, streams: Streams) -> int:
        """Do what ``cmd.exe /c LINE`` does; returns its exit code."""
        try:
            self.execute(line, streams)
        except Leave as leave:
            self.code = leave.code
        self.world.settle()
        return 1 if self.code == NOT_FOUND else self.code

    def spawn(self, line: str, streams: Streams) -> int:
        """Start a program without cmd.exe, as Windows does with the commands of an answer file."""
        name, rest = cmdline.program(line)
        command = self.commands.program(name.replace("/", "\\").rpartition("\\")[2].lower())
        if command is None:
            streams.err("The system cannot find the file specified. (0x80070002)\r\n")
            return 2
        try:
            return command(self, rest, streams)
        except Leave as leave:
            return leave.code

    def execute(self, line: str, streams: Streams) -> None:
        """Run one line."""
        try:
            full = cmdline.expand(line, self.environment())
            if max(len(line), len(full)) > LIMIT:
                raise SyntaxFault("The command line is too long.")
            tree = cmdline.parse(full)
            self._sequence(tree, streams)
        except SyntaxFault as fault:
            streams.err(f"{fault}\r\n")
            self.code = 1

    def environment(self) -> dict[str, str]:
        """The variables, with those that cmd.exe computes itself."""
        return {**self.world.variables(), **self.variables, "CD": self.cwd.rstrip("\\"), "ERRORLEVEL": str(self.code)}

    def path(self, text: str) -> Path | None:
        """The real file behind a path."""
        return self.world.drives.real(text, self.cwd)

    def check(self) -> None:
        """Let a long command end if its caller has ended it.

        :raises Cancelled: the caller has.
        """
        if self.cancelled():
            raise Cancelled

    def _sequence(self, tree: Sequence, streams: Streams) -> None:
        index = 0
        while index < len(tree.items):
            self.check()
            operator = tree.operators[index]
            last = index
            while last + 1 < len(tree.items) and tree.operators[last + 1] == "|":
                last += 1
            if not ((operator == "&&" and self.code != 0) or (operator == "||" and self.code == 0)):
                self._pipe(tree.items[index : last + 1], streams)
            index = last + 1

    def _pipe(self, items: list[Simple | Group], streams: Streams) -> None:
        read = streams.read
        for item in items[:-1]:
            kept: list[str] = []
            self._one(item, Streams(kept.append, streams.err, read))
            text = "".join(kept)
            read = _constant(text)
        self._one(items[-1], Streams(streams.out, streams.err, read))

    def _one(self, item: Simple | Group, streams: Streams) -> None:
        closers: list[Callable[[], None]] = []
        try:
            for redirection in item.redirections:
                streams = self._redirect(redirection, streams, closers)
        except OSError as error:
            streams.err(f"{error}\r\n")
            self.code = 1
            return
        try:
            if isinstance(item, Group):
                self._sequence(item.body, streams)
            else:
                self._simple(item.text, streams)
        finally:
            for close in closers:
                close()

    def _redirect(self, wanted: Redirection, streams: Streams, closers: list[Callable[[], None]]) -> Streams:
        if wanted.target.startswith("&"):
            writer = {"1": streams.out, "2": streams.err}.get(wanted.target[1], _nowhere)
        elif wanted.handle == 0:
            source = self.path(wanted.target)
            if source is None or not source.is_file():
                raise OSError("The system cannot find the file specified.")
            return Streams(streams.out, streams.err, _constant(source.read_text(errors="replace")))
        else:
            writer = self._writer(wanted, closers)
        if wanted.handle == 1:
            return Streams(writer, streams.err, streams.read)
        return Streams(streams.out, writer if wanted.handle == 2 else streams.err, streams.read)

    def _writer(self, wanted: Redirection, closers: list[Callable[[], None]]) -> Writer:
        name = wanted.target.rpartition("\\")[2].rstrip(":").upper()
        if name == "NUL":
            return _nowhere
        if name == "COM1" and self.world.has_com1:
            return self.world.serial
        if name == "COM1":
            raise OSError("The system cannot find the file specified.")
        path = self.path(wanted.target)
        if path is None or not path.parent.is_dir():
            raise OSError("The system cannot find the path specified.")
        if path.is_dir():
            raise OSError("Access is denied.")
        file = path.open("ab" if wanted.append else "wb")
        closers.append(file.close)
        return lambda text: (file.write(text.encode("utf-8")), None)[1]

    def _simple(self, text: str, streams: Streams) -> None:
        if not text.strip():
            return
        name, rest = cmdline.program(text.lstrip().lstrip("@"))
        base = name.replace("/", "\\").rpartition("\\")[2].lower()
        if base.endswith((".cmd", ".bat")):
            self.code = batch.play(self.path(name), self.world, streams.err)
            return
        if len(name) == 2 and name[1] == ":":
            base, rest = "cd", f" /d {name}\\"
        command = self.commands.find(base)
        if command is None:
            streams.err(
                f"'{name}' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n"
            )
            self.code = NOT_FOUND
            return
        self.code = command(self, rest, streams)


def _nowhere(text: str) -> None:
    del text


def _constant(text: str) -> Callable[[], str]:
    return lambda: text


def interactive(shell: Shell, streams: Streams, lines: Callable[[str], str | None]) -> int:
    """Run line after line until ``exit`` or the end; *lines* shows a prompt and returns a line, None at the end."""
    streams.out(BANNER.format(shell.world.windows.version))
    while True:
        line = lines(f"\r\n{shell.cwd}>")
        if line is None:
            return shell.code
        try:
            shell.execute(line, streams)
        except Leave as leave:
            return leave.code
