"""Commands that show nodes and labs as pictures: vnc, rdp, ui, graph."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import files, settings
from winlab.cli.app import NoResult
from winlab.cli.common import NodeName, say
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab import Node

Port = Annotated[
    int, typer.Option("--port", help="Serve the page on this port of 127.0.0.1; 0: on any.", min=0, max=65535)
]


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(vnc)
    app.command()(rdp)
    app.command()(ui)
    app.command(cls=NoResult)(graph)


def vnc(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    web: Annotated[bool, typer.Option("--web", help="Serve the page, also if there is no browser here.")] = False,
    viewer: Annotated[
        bool, typer.Option("--viewer", help="Open a viewer of this host instead of the browser.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Only print the address and the password.")] = False,
    port: Port = 0,
) -> None:
    """Show a node's screen in the browser, until Ctrl-C. Without a browser, print its address.

    Examples:
      winlab vnc node-1
      winlab vnc node-1 --print
    """
    from winlab import Lab

    there = Lab(lab).node(node)
    if web + viewer + show > 1:
        raise UsageError("--web, --viewer and --print exclude each other.")
    if not (viewer or show):
        from winlab.web import app, browser

        if web or browser.find():
            there.screen()  # raises if there is none
            _serve(app.of_screen(there), app.screen_path(lab, node), port, f"The screen of '{node}'")
            return
    _print_screen(there, viewer)
    if not (viewer or show):
        say("There is no browser here. 'winlab vnc --web' serves the page for one elsewhere.", error=True)


def _print_screen(there: Node, viewer: bool) -> None:
    """Print where a screen is, and open a viewer; from another host it comes by ssh, until Ctrl-C."""
    from winlab.cli.kinds import access as kinds

    with there.screen_here() as screen:
        row = kinds.Screen(name=there.name, address=screen.address, port=screen.port, password=screen.password)
        if not current().stream(kinds.Screen, row):
            say(f"{there.name}: vnc://{screen.address}:{screen.port}  password {screen.password}")
        if viewer and (hint := there.open_viewer(screen)):
            say(hint, error=True)
        if screen.host:
            say(f"It comes from '{screen.host}' by ssh, until Ctrl-C.", error=True)
            _wait()


def rdp(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="Write a .rdp file for a client on another computer; '-': print it.", metavar="FILE"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Only print the address, user and password.")] = False,
) -> None:
    """Open the Remote Desktop of a Windows node, if there is a client; print its address, user and password.

    Examples:
      winlab rdp node-1
      winlab rdp node-1 --file node-1.rdp
    """
    from winlab import Lab
    from winlab.cli.kinds import access as kinds

    current().keep_apart(file)
    there = Lab(lab).node(node)
    desktop = there.desktop()
    if file is not None:
        try:
            files.write_named(file, desktop.file())
        except OSError as error:
            raise UsageError(f"'{file}' can't be written.", why=str(error)) from error
    is_printed = file is not None and str(file) == "-"
    login = f"{node}: rdp://{desktop.address}:{desktop.port}  user {desktop.user}  password {desktop.password}"
    row = kinds.Desktop(
        name=node, address=desktop.address, port=desktop.port, user=desktop.user, password=desktop.password
    )
    if not current().answer(kinds.Desktop, [row]):
        say(login, error=is_printed)
    if file is None and not show and (hint := there.open_desktop(desktop)):
        say(hint, error=True)


def ui(port: Port = 0) -> None:
    """Show all labs in the browser, until Ctrl-C: machines, screens, consoles, topology, timeline; start, clone, reset.

    Examples:
      winlab ui
    """
    from winlab import Site
    from winlab.web.app import Labs

    labs = Labs(Site())
    try:
        _serve(labs.application, "/", port, "winlab")
    finally:
        labs.jobs.stop()


def graph(_word: LabWord = None, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Print the topology of a lab as an SVG picture.

    Examples:
      winlab graph > lab.svg
    """
    from winlab import Lab

    say(Lab(lab).graph(), end="")


def _serve(application: object, path: str, port: int, what: str) -> None:
    """Serve an application and open the browser, until Ctrl-C."""
    from winlab.cli.kinds import access as kinds
    from winlab.web import browser, serve

    with serve.serving(application, path, port) as url:  # type: ignore[arg-type]
        if not current().stream(kinds.Page, kinds.Page(name=what, url=url)):
            say(f"{what}: {url}")
        say("The URL works once. Ctrl-C ends the page.", error=True)
        if not browser.open_url(url):
            number = url.split(":")[2].split("/")[0]
            say(f"For a browser on another computer: ssh -L {number}:127.0.0.1:{number} THIS-HOST", error=True)
        _wait()


def _wait() -> None:
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
