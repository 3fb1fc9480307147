"""Commands for one node: ssh, exec, vnc, serial, screenshot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from winlab import settings
from winlab.cli.common import Lab, Node

VIEWERS = ("remote-viewer", "vncviewer", "gvncviewer")


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(ssh)
    app.command("exec")(execute)
    app.command()(vnc)
    app.command()(serial)
    app.command()(screenshot)


def ssh(node: Node, lab: Lab = settings.DEFAULT_LAB) -> None:
    """Open an ssh session on a node. Its host key is known already."""
    from winlab import run
    from winlab.adapters.guests.ssh import arguments
    from winlab.lab_folder import LabState
    from winlab.operations import look
    from winlab.site import Site

    with Site().connected() as conn:
        machine = look.find_node(lab, node, conn)
    state = LabState(lab)
    state.credentials()  # says what is wrong if this account has none
    run.replace(arguments(machine.tag, state))


def execute(
    node: Node,
    command: Annotated[list[str], typer.Argument(help="The command, after --. A single word is a line for the shell.")],
    lab: Lab = settings.DEFAULT_LAB,
    via: Annotated[
        Literal["ssh", "winrm"] | None, typer.Option(help="By default WinRM on Windows, ssh on Linux.")
    ] = None,
) -> None:
    """Run a command on a node; its output and exit code are winlab's."""
    from winlab.operations import look
    from winlab.site import Site

    guest = look.login(lab, node, Site(), via)
    try:
        code = guest.execute(command, _writer(sys.stdout.buffer), _writer(sys.stderr.buffer))
    finally:
        guest.close()
    # a Windows exit code has 32 bits, a Linux one 8: what doesn't fit must not become 0
    raise typer.Exit(code if 0 <= code <= 255 else 255)


def _writer(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(chunk: bytes) -> None:
        stream.write(chunk)
        stream.flush()

    return write


def vnc(
    node: Node,
    lab: Lab = settings.DEFAULT_LAB,
    viewer: Annotated[bool, typer.Option(help="Open a viewer, where there is one and a display.")] = True,
) -> None:
    """Print where a node's screen is, and open a viewer."""
    from winlab import run
    from winlab.adapters.vm import domains
    from winlab.lab_folder import LabState
    from winlab.operations import look
    from winlab.site import Site

    with Site().connected() as conn:
        machine = look.find_node(lab, node, conn)
        address, port = domains.vnc(conn, machine.domain)
    print(f"{node}: vnc://{address}:{port}  password {LabState(lab).credentials().nodes[node].vnc_password}")
    if not viewer or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    program = next((name for name in VIEWERS if run.find(name)), None)
    if program is None:
        print(f"Install one of {', '.join(VIEWERS)} to have the screen opened.")
        return
    run.start([program, f"vnc://{address}:{port}" if program == "remote-viewer" else f"{address}::{port}"])


def serial(
    node: Node,
    lab: Lab = settings.DEFAULT_LAB,
    log: Annotated[bool, typer.Option("--log", help="Print what the port has said so far, and end.")] = False,
) -> None:
    """Join a node's serial port to the terminal. Ctrl-] leaves."""
    from winlab.adapters.vm import console
    from winlab.adapters.vm.volumes import Pool
    from winlab.design.render.domain import serial_log
    from winlab.operations import look
    from winlab.site import Site

    with Site().connected() as conn:
        machine = look.find_node(lab, node, conn)
        if log:
            pool = Pool(conn)
            pool.refresh()
            sys.stdout.buffer.write(pool.download(serial_log(lab, node)))
            return
        print("Ctrl-] leaves.", file=sys.stderr)
        console.join(conn, machine.domain)


def screenshot(
    node: Node,
    file: Annotated[Path, typer.Argument(help="The PNG file to write.")],
    lab: Lab = settings.DEFAULT_LAB,
) -> None:
    """Write a node's screen to a PNG file."""
    from winlab.adapters.vm import domains
    from winlab.errors import UsageError
    from winlab.operations import look
    from winlab.site import Site

    with Site().connected() as conn:
        machine = look.find_node(lab, node, conn)
        image = domains.screenshot(conn, machine.domain)
    try:
        file.write_bytes(image)
    except OSError as error:
        raise UsageError(f"The screenshot can't be written to '{file}'.", why=str(error)) from error
