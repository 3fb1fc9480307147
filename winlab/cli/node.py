"""Commands for one node: ssh, exec, vnc, serial, screenshot, move."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer

from winlab import files, settings
from winlab.cli.app import Command
from winlab.cli.common import NodeName, Output, drop_output, say
from winlab.cli.complete import complete_hypervisors
from winlab.cli.session import Format, LabName, current
from winlab.errors import ExitCode

MOST_INPUT = 64 << 20  # bytes of the standard input for a command: it is in memory before the command begins


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command(cls=Verbatim)(ssh)
    app.command("exec", cls=Verbatim)(execute)
    app.command()(vnc)
    app.command()(serial)
    app.command()(screenshot)
    app.command()(move)


def ssh(
    node: NodeName,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A command to run there, in place of a session.", metavar="[-- COMMAND]", show_default=False
        ),
    ] = None,
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Open an ssh session on a node, or run a command in one. Its host key is already known.

    Examples:
      winlab ssh node-1
      winlab ssh ci/controller-1 -- uname -a
    """
    from winlab import Lab, run

    run.replace(Lab(lab).node(node).ssh(command or ()))


class Verbatim(Command):
    """A command that passes words on: after its own ones everything belongs to another program, as with ssh."""

    own = 1  # how many words are its own; options may stand between them

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags and the node's name; leave the rest to the node."""
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        valued = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        rest: list[str] = super().parse_args(ctx, separated(args, valued, self.own))
        return rest


def separated(words: list[str], valued: Collection[str], own: int = 1) -> list[str]:
    """The words of such a command with ``--`` before those that it passes on, unless it is there.

    :param valued: the options that take a value.
    :param own: how many words are its own.
    """
    at, names = 0, 0
    while at < len(words) and words[at] != "--":
        if words[at].startswith("-"):
            at += 2 if words[at] in valued else 1
            continue
        if names == own:
            return [*words[:at], "--", *words[at:]]
        names, at = names + 1, at + 1
    return words


def execute(
    node: NodeName,
    command: Annotated[
        list[str],
        typer.Argument(
            help="Everything after NODE. A single word is run as a line of the node's shell.", metavar="COMMAND..."
        ),
    ],
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass on the standard input, which is read to its end first.")
    ] = False,
    lab: LabName = settings.DEFAULT_LAB,
    via: Annotated[
        Literal["ssh", "winrm"] | None,
        typer.Option("--via", help="Default: WinRM on Windows, ssh on Linux.", metavar="ssh|winrm"),
    ] = None,
) -> None:
    """Run a command on a node, and pass on its output and exit code.

    Examples:
      winlab exec node-1 hostname
      winlab exec controller-1 -- 'ls /etc | wc -l'   # one word: a line of the shell
      winlab exec -i controller-1 sh < script.sh
    """
    from winlab import Lab

    given = _input() if stdin else b""
    current().left_running = f"The command may go on in '{node}': only its connection has ended."
    out, err = _writer(sys.stdout.buffer), _writer(sys.stderr.buffer)
    try:
        code = Lab(lab).node(node).stream(command, out, err, stdin=given, via=via)
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None
    # a Windows exit code has 32 bits, a Linux one 8: what doesn't fit must not become 0
    raise typer.Exit(code if 0 <= code <= 255 else 255)


def _input() -> bytes:
    """The whole standard input.

    :raises UsageError: it is too large.
    """
    from winlab.errors import UsageError

    given = sys.stdin.buffer.read(MOST_INPUT + 1)
    if len(given) > MOST_INPUT:
        raise UsageError(
            f"The standard input has more than {MOST_INPUT >> 20} MiB.", cure="Give it to the command in parts."
        )
    return given


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(chunk: bytes) -> None:
        try:
            stream.write(chunk)
            stream.flush()
        except BrokenPipeError:
            drop_output(stream)
            raise

    return write


def vnc(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    viewer: Annotated[bool, typer.Option(help="Open a viewer, if there is one and a display.")] = True,
) -> None:
    """Print where to reach a node's screen, and open a viewer. From another host it comes by ssh, until Ctrl-C.

    Examples:
      winlab vnc node-1
      winlab vnc node-1 --no-viewer
    """
    from winlab import Lab

    there = Lab(lab).node(node)
    with there.screen_here() as screen:
        say(f"{node}: vnc://{screen.address}:{screen.port}  password {screen.password}")
        if viewer and (hint := there.open_viewer(screen)):
            say(hint)
        if screen.host:
            say(f"It comes from '{screen.host}' by ssh, until Ctrl-C.")
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                threading.Event().wait()


def serial(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    log: Annotated[bool, typer.Option("--log", help="Print what the port has written so far, and exit.")] = False,
) -> None:
    """Connect the terminal to a node's serial port. Press Ctrl-] to leave.

    Examples:
      winlab serial controller-1
      winlab serial node-1 --log > node-1.log
    """
    from winlab import Lab

    there = Lab(lab).node(node)
    if log:
        written = there.serial_log()
        if sys.stdout.isatty():
            say(written.decode(errors="replace"))
        else:
            sys.stdout.buffer.write(written)
        return
    say("Ctrl-] leaves.", error=True)
    there.console()


def screenshot(
    node: NodeName,
    file: Annotated[Path, typer.Argument(help="The PNG file to write, or '-'.")],
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Write a node's screen to a PNG file.

    Examples:
      winlab screenshot node-1 node-1.png
      winlab screenshot node-1 - > node-1.png
    """
    from winlab import Lab
    from winlab.errors import UsageError

    image = Lab(lab).node(node).screenshot()
    try:
        files.write_named(file, image)
    except OSError as error:
        raise UsageError(f"The screenshot can't be written to '{file}'.", why=str(error)) from error


def move(
    node: NodeName,
    host: Annotated[str, typer.Argument(help="The hypervisor's name.", autocompletion=complete_hypervisors)],
    cold: Annotated[bool, typer.Option("--cold", help="Shut the node down for the move.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
) -> None:
    """Move a node to another hypervisor with its disks, while it runs if possible. Run again, it finishes.

    Examples:
      winlab move node-1 hypervisor-2
      winlab move node-1 hypervisor-2 --cold
    """
    from winlab import Lab

    with current().shown(output) as tell:
        done = Lab(lab).node(node).move(host, cold=cold, listener=tell)
    if output is Output.JSON:
        current().result = dataclasses.asdict(done)
    elif done.how == "nothing":
        say(f"{node} is on '{host}' already: {done.state}")
    else:
        way = "while it ran" if done.how == "live" else "while it was off"
        say(f"{node}: moved from '{done.source}' to '{done.target}' {way}; it is {done.state}")
