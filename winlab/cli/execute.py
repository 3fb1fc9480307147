"""winlab exec and pwsh: commands on one node, or on several at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer

from winlab import settings
from winlab.cli import streams
from winlab.cli.app import NoResult, settle
from winlab.cli.common import NodeName, say
from winlab.cli.complete import complete_nodes, complete_pools
from winlab.cli.session import LabName, current
from winlab.cli.tree import SHARED
from winlab.cli.verbatim import Verbatim
from winlab.cli.words import bare_node
from winlab.errors import ExitCode, UsageError

LONGEST = 1 << 16  # bytes of a line that is kept until its end comes
MOST = 1 << 20  # bytes of a stream of a node that a document has
# options that stand in the place of a node, and their parameters
GROUPS: Mapping[str, str] = MappingProxyType(
    {"--all": "everything", "--pool": "pool", "--linux": "linux", "--windows": "windows"}
)


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command("exec", cls=_Exec)(execute)
    app.command(cls=NoResult)(pwsh)


class _Exec(Verbatim):
    """A command for one node, unless an option names several."""

    instead = GROUPS
    shared = SHARED

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options, and the node's lab if its name has one."""
        rest = super().parse_args(ctx, args)
        given = ctx.params.get("words")
        if given and not ctx.resilient_parsing and not any(ctx.params[name] for name in GROUPS.values()):
            ctx.params["words"] = [bare_node(ctx, given[0]), *given[1:]]
            settle(ctx)
        return rest


def execute(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NODE COMMAND...",
            help="The node (NODE, or LAB/NODE), unless an option names nodes; then the command. A single word is run "
            "as a line of the node's shell.",
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
        Literal["ssh", "winrm"] | None,
        typer.Option("--via", help="Default: WinRM on Windows, ssh on Linux.", metavar="ssh|winrm"),
    ] = None,
) -> None:
    """Run a command on a node, or on several at once, and pass on its output and exit code.

    With -o json or yaml, the result has both streams, up to the last MiB of each.

    Examples:
      winlab exec node-1 hostname
      winlab exec -i node-1 powershell - < script.ps1
      winlab exec --windows -o json hostname   # on all Windows nodes, as one document
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
        if not current().for_people:
            raise UsageError("What a terminal shows can't be a document.", cure="Use -o table with --tty.")
        _at_terminal(lab, node, command)
    current().left_running = f"The command may go on in '{node}': only its connection has ended."
    given = streams.given() if stdin else b""
    if not current().for_people:
        ends = End(), End()
        code = Lab(lab).node(node).stream(command, *(partial(end, node) for end in ends), stdin=given, via=via)
        _answer({node: (code, "")}, *ends)
        raise _exit(code)
    out, err = streams.writer(sys.stdout.buffer), streams.writer(sys.stderr.buffer)
    try:
        code = Lab(lab).node(node).stream(command, out, err, stdin=given, via=via)
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None
    raise _exit(code)


def pwsh(node: NodeName, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Open an interactive PowerShell on a Windows node, by ssh.

    Examples:
      winlab pwsh node-1
    """
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
    run.replace(there.ssh(command, tty=True))


def _on_all(lab: str, command: Sequence[str], pools: Sequence[str], systems: Sequence[Any]) -> None:
    from winlab import Lab

    own = Lab(lab)
    nodes = own.select(pools=pools, systems=systems)
    current().left_running = f"The command may go on in {', '.join(nodes)}: only the connections have ended."
    if not current().for_people:
        ends = End(), End()
        ended = own.execute(command, nodes, stdout=ends[0], stderr=ends[1])
        _answer({node: (one.exit_code, str(one.error or "")) for node, one in ended.items()}, *ends)
        raise _exit(*(one.exit_code for one in ended.values()))
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
    raise _exit(*(one.exit_code for one in ended.values()))


def _exit(*codes: int) -> typer.Exit:
    """The end of this command: the highest exit code.

    A Windows exit code has 32 bits, a Linux one 8: what doesn't fit must not become 0.
    """
    return typer.Exit(max(code if 0 <= code <= 255 else 255 for code in codes))


def _answer(ended: Mapping[str, tuple[int, str]], out: End, err: End) -> None:
    """Give programs the result.

    :param ended: the exit code of each node, and why the command could not run there.
    """
    from winlab.cli.kinds import access as kinds

    current().answer(
        kinds.CommandResult,
        [
            kinds.CommandResult(
                name=node,
                exit_code=code,
                stdout=out.of(node),
                stderr=err.of(node),
                truncated=node in out.cut or node in err.cut,
                problem=problem,
            )
            for node, (code, problem) in ended.items()
        ],
    )


class End:
    """Keeps the end of what nodes print: the last ``MOST`` bytes of each."""

    def __init__(self) -> None:
        self.cut: set[str] = set()  # nodes that printed more
        self._kept: dict[str, bytearray] = {}

    def __call__(self, node: str, chunk: bytes) -> None:
        """Take output of a node. Each node may have its own thread."""
        kept = self._kept.setdefault(node, bytearray())
        kept += chunk
        if len(kept) > MOST:
            self.cut.add(node)
            del kept[:-MOST]

    def of(self, node: str) -> str:
        """What is kept of a node. Bytes that are not UTF-8 are replaced."""
        return self._kept.get(node, b"").decode(errors="replace")


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
