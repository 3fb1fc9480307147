"""winlab exec and pwsh: commands on one node, or on several at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from winlab import settings
from winlab.cli import streams
from winlab.cli.common import NodeName, say
from winlab.cli.complete import complete_nodes, complete_pools
from winlab.cli.session import LabName, current
from winlab.errors import ExitCode, UsageError

LONGEST = 1 << 16  # bytes of a line that is kept until its end comes
GROUPS = frozenset({"--all", "--pool", "--linux", "--windows"})  # flags that stand in the place of a node


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command("exec", cls=_Exec)(execute)
    app.command()(pwsh)


class _Exec(TyperCommand):
    """A command after whose node everything belongs to the command for the node, as with ssh."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags and the node's name; leave the rest to the node."""
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        valued = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        rest: list[str] = super().parse_args(ctx, separated(args, valued))
        return rest


def separated(words: list[str], valued: Collection[str]) -> list[str]:
    """The words of ``exec`` with ``--`` before the command for the node, unless it is there.

    :param valued: the options that take a value.
    """
    at, named = 0, False
    while at < len(words) and words[at] != "--":
        word = words[at]
        if word.startswith("-"):
            named = named or word.partition("=")[0] in GROUPS
            at += 2 if word in valued else 1
            continue
        if named:
            return [*words[:at], "--", *words[at:]]
        named, at = True, at + 1
    return words


def execute(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE COMMAND...",
            help="The node, unless a flag names nodes; then the command. A single word is run as a shell line.",
            autocompletion=complete_nodes,
        ),
    ],
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass on the standard input as it comes.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Run it at a terminal, by ssh.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="On all nodes at once.")] = False,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME", help="On the nodes of a pool.", autocompletion=complete_pools),
    ] = None,
    linux: Annotated[bool, typer.Option("--linux", help="On all Linux nodes.")] = False,
    windows: Annotated[bool, typer.Option("--windows", help="On all Windows nodes.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
    via: Annotated[
        Literal["ssh", "winrm"] | None, typer.Option(help="By default WinRM on Windows, ssh on Linux.")
    ] = None,
) -> None:
    """Run a command on a node, or on several at once, and pass on its output and exit code.

    Examples: winlab exec controller-1 ls -la · winlab exec -i node-1 powershell - < x.ps1 ·
    winlab exec -t controller-1 top · winlab exec --all hostname
    """
    from winlab import Lab

    if everything or pool or linux or windows:
        if stdin or tty or via:
            raise UsageError("--stdin, --tty and --via are for a single node.")
        systems = [name for name, wanted in (("linux", linux), ("windows", windows)) if wanted]
        _on_all(lab, words, [] if everything else pool or [], [] if everything else systems)
        return
    node, *command = words
    if not command:
        raise UsageError("The command is missing.", cure=f"'winlab ssh {node}' opens a session.")
    if tty:
        if via == "winrm":
            raise UsageError("WinRM has no terminals.", cure="Leave --via out: --tty uses ssh.")
        _at_terminal(lab, node, command)
    current().left_running = f"The command may go on in '{node}': only its connection has ended."
    out, err = streams.writer(sys.stdout.buffer), streams.writer(sys.stderr.buffer)
    given = streams.given() if stdin else b""
    try:
        code = Lab(lab).node(node).stream(command, out, err, stdin=given, via=via)
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None
    # a Windows exit code has 32 bits, a Linux one 8: what doesn't fit must not become 0
    raise typer.Exit(code if 0 <= code <= 255 else 255)


def pwsh(node: NodeName, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Open an interactive PowerShell on a Windows node, by ssh."""
    _at_terminal(lab, node, ["powershell.exe", "-NoLogo"], "windows")


def _at_terminal(lab: str, node: str, command: Sequence[str], system: str = "") -> None:
    """Replace this process with a command at a terminal: ssh passes on its size, keys and signals.

    :param system: what the node must run; empty: anything.
    """
    from winlab import Lab, run

    if not sys.stdin.isatty():
        raise UsageError("This needs a terminal, and the standard input is none.", cure="Leave --tty out.")
    there = Lab(lab).node(node)
    if system and there.system != system:
        raise UsageError(f"'{node}' has no PowerShell: it runs {there.system}.", cure=f"Run 'winlab ssh {node}'.")
    run.replace(there.ssh(command))


def _on_all(lab: str, command: Sequence[str], pools: Sequence[str], systems: Sequence[Any]) -> None:
    from winlab import Lab

    own = Lab(lab)
    nodes = own.select(pools=pools, systems=systems)
    current().left_running = f"The command may go on in {', '.join(nodes)}: only the connections have ended."
    width, lock = max(map(len, nodes)), threading.Lock()
    out, err = (Prefixed(streams.writer(stream.buffer), width, lock) for stream in (sys.stdout, sys.stderr))
    try:
        ended = own.execute(command, nodes, stdout=out, stderr=err)
        out.end()
        err.end()
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None
    for node, one in ended.items():
        if one.error is not None:
            for line in str(one.error).splitlines():
                say(f"{node:<{width}} | winlab: {line}", error=True)
    raise typer.Exit(max(one.exit_code if 0 <= one.exit_code <= 255 else 255 for one in ended.values()))


class Prefixed:
    """Writes whole lines of several nodes, each with its node's name before it.

    :param write: writes bytes.
    :param width: of the longest name.
    :param lock: of all streams that end in one terminal.
    """

    def __init__(self, write: Callable[[bytes], None], width: int, lock: threading.Lock) -> None:
        self._write = write
        self._width = width
        self._lock = lock
        self._rest: dict[str, bytes] = {}

    def __call__(self, node: str, chunk: bytes) -> None:
        """Take output of a node.

        :raises BrokenPipeError: it can't be written.
        """
        with self._lock:
            *lines, self._rest[node] = (self._rest.get(node, b"") + chunk).split(b"\n")
            prefix = f"{node:<{self._width}} | ".encode()
            if len(self._rest[node]) > LONGEST:
                lines, self._rest[node] = [*lines, self._rest[node]], b""
            if lines:
                self._write(b"".join(prefix + line.removesuffix(b"\r") + b"\n" for line in lines))

    def end(self) -> None:
        """Write the lines that have no end."""
        for node, rest in self._rest.items():
            if rest:
                self(node, b"\n")
