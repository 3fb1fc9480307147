"""Commands for one node: ssh, exec, vnc, serial, screenshot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from winlab import files, settings
from winlab.cli.common import NodeName, say
from winlab.cli.session import LabName, current


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(ssh)
    app.command("exec")(execute)
    app.command()(vnc)
    app.command()(serial)
    app.command()(screenshot)


def ssh(node: NodeName, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Open an ssh session on a node. Its host key is already known."""
    from winlab import Lab, run

    run.replace(Lab(lab).node(node).ssh())


def execute(
    node: NodeName,
    command: Annotated[list[str], typer.Argument(help="The command, after --. A single word is run as a shell line.")],
    lab: LabName = settings.DEFAULT_LAB,
    via: Annotated[
        Literal["ssh", "winrm"] | None, typer.Option(help="By default WinRM on Windows, ssh on Linux.")
    ] = None,
) -> None:
    """Run a command on a node, and pass on its output and exit code."""
    from winlab import Lab

    current().left_running = f"The command may go on in '{node}': only its connection has ended."
    code = Lab(lab).node(node).stream(command, _writer(sys.stdout.buffer), _writer(sys.stderr.buffer), via=via)
    # a Windows exit code has 32 bits, a Linux one 8: what doesn't fit must not become 0
    raise typer.Exit(code if 0 <= code <= 255 else 255)


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(chunk: bytes) -> None:
        stream.write(chunk)
        stream.flush()

    return write


def vnc(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    viewer: Annotated[bool, typer.Option(help="Open a viewer, if there is one and a display.")] = True,
) -> None:
    """Print where to reach a node's screen, and open a viewer."""
    from winlab import Lab

    there = Lab(lab).node(node)
    screen = there.screen()
    say(f"{node}: vnc://{screen.address}:{screen.port}  password {screen.password}")
    if viewer and (hint := there.open_viewer(screen)):
        say(hint)


def serial(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    log: Annotated[bool, typer.Option("--log", help="Print what the port has written so far, and exit.")] = False,
) -> None:
    """Connect the terminal to a node's serial port. Ctrl-] leaves."""
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
    """Write a node's screen to a PNG file."""
    from winlab import Lab
    from winlab.errors import UsageError

    image = Lab(lab).node(node).screenshot()
    try:
        files.write_named(file, image)
    except OSError as error:
        raise UsageError(f"The screenshot can't be written to '{file}'.", why=str(error)) from error
