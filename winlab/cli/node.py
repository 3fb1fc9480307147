"""Commands for one node: ssh, serial, screenshot, move."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from winlab import files, settings
from winlab.cli.app import NoResult
from winlab.cli.common import NodeName, say
from winlab.cli.complete import complete_hypervisors
from winlab.cli.session import LabName, current
from winlab.cli.verbatim import Verbatim


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command(cls=Verbatim)(ssh)
    app.command(cls=NoResult)(serial)
    app.command()(screenshot)
    app.command()(move)


def ssh(
    node: NodeName,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A command to run there, in place of a session.", metavar="[-- COMMAND...]", show_default=False
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
    from winlab.cli.kinds import supplies as kinds
    from winlab.errors import UsageError

    current().keep_apart(file)
    image = Lab(lab).node(node).screenshot()
    try:
        files.write_named(file, image)
    except OSError as error:
        raise UsageError(f"The screenshot can't be written to '{file}'.", why=str(error)) from error
    current().answer(kinds.File, [kinds.File(name=str(file), bytes=len(image))])


def move(
    node: NodeName,
    host: Annotated[str, typer.Argument(help="The hypervisor's name.", autocompletion=complete_hypervisors)],
    cold: Annotated[bool, typer.Option("--cold", help="Shut the node down for the move.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Move a node to another hypervisor with its disks, while it runs if possible. Run again, it finishes.

    Examples:
      winlab move node-1 hypervisor-2
      winlab move node-1 hypervisor-2 --cold
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    with current().shown() as tell:
        done = Lab(lab).node(node).move(host, cold=cold, listener=tell)
    if current().answer(kinds.Move, [kinds.Move.made_of(done, "node")]):
        return
    if done.how == "nothing":
        say(f"{node} is on '{host}' already: {done.state}")
    else:
        way = "while it ran" if done.how == "live" else "while it was off"
        say(f"{node}: moved from '{done.source}' to '{done.target}' {way}; it is {done.state}")
