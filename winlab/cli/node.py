"""Commands for one node: ssh, exec, vnc, serial, screenshot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from winlab import settings
from winlab.cli.common import LabName, NodeName

VIEWERS = ("remote-viewer", "vncviewer", "gvncviewer")


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(ssh)
    app.command("exec")(execute)
    app.command()(vnc)
    app.command()(serial)
    app.command()(screenshot)


def ssh(node: NodeName, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Open an ssh session on a node. Its host key is already known."""
    from winlab import run
    from winlab.lab import Lab

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
    from winlab.lab import Lab

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
    from winlab import run
    from winlab.lab import Lab

    screen = Lab(lab).node(node).screen()
    print(f"{node}: vnc://{screen.address}:{screen.port}  password {screen.password}")
    if not viewer or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    program = next((name for name in VIEWERS if run.find(name)), None)
    if program is None:
        print(f"Install one of {', '.join(VIEWERS)} to have the screen opened.")
        return
    separator = ":" if program == "remote-viewer" else "::"
    where = f"{screen.address}{separator}{screen.port}"
    run.start([program, f"vnc://{where}" if program == "remote-viewer" else where])


def serial(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    log: Annotated[bool, typer.Option("--log", help="Print what the port has written so far, and exit.")] = False,
) -> None:
    """Connect the terminal to a node's serial port. Ctrl-] leaves."""
    from winlab.lab import Lab

    there = Lab(lab).node(node)
    if log:
        sys.stdout.buffer.write(there.serial_log())
        return
    print("Ctrl-] leaves.", file=sys.stderr)
    there.console()


def screenshot(
    node: NodeName,
    file: Annotated[Path, typer.Argument(help="The PNG file to write.")],
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Write a node's screen to a PNG file."""
    from winlab.errors import UsageError
    from winlab.lab import Lab

    image = Lab(lab).node(node).screenshot()
    try:
        file.write_bytes(image)
    except OSError as error:
        raise UsageError(f"The screenshot can't be written to '{file}'.", why=str(error)) from error
