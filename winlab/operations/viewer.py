"""Open programs of this host on a node's screen or desktop."""

from __future__ import annotations

import os
from pathlib import Path

from winlab import run
from winlab.operations.reach import Screen

VIEWERS = ("remote-viewer", "vncviewer", "gvncviewer")
DESKTOPS = {"xfreerdp3": (), "xfreerdp": (), "remmina": ("-c",)}  # clients of Remote Desktop, and what precedes a file


def open_viewer(screen: Screen) -> str:
    """Start the first viewer that is installed; without a graphical display, do nothing.

    :returns: what to install, as text, if there is a display and no viewer; otherwise empty.
    """
    if not _has_display():
        return ""
    program = next((name for name in VIEWERS if run.find(name)), None)
    if program is None:
        return f"Install one of {', '.join(VIEWERS)} to have the screen opened."
    if program == "remote-viewer":
        run.start([program, f"vnc://{screen.address}:{screen.port}"])
    else:
        run.start([program, f"{screen.address}::{screen.port}"])  # two colons: a port, not a display's number
    return ""


def open_desktop(file: Path) -> str:
    """Start the first client of Remote Desktop that is installed; without a graphical display, do nothing.

    :param file: a ``.rdp`` file.
    :returns: what to install, as text, if there is a display and no client; otherwise empty.
    """
    if not _has_display():
        return ""
    program = next((name for name in DESKTOPS if run.find(name)), None)
    if program is None:
        return f"Install one of {', '.join(DESKTOPS)} to have the desktop opened."
    run.start([program, *DESKTOPS[program], file])
    return ""


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
