"""Open a viewer of this host on a node's screen."""

from __future__ import annotations

import os

from winlab import run
from winlab.operations.reach import Screen

VIEWERS = ("remote-viewer", "vncviewer", "gvncviewer")


def open_viewer(screen: Screen) -> str:
    """Start the first viewer that is installed; without a graphical display, do nothing.

    :returns: what to install, as text, if there is a display and no viewer; otherwise empty.
    """
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return ""
    program = next((name for name in VIEWERS if run.find(name)), None)
    if program is None:
        return f"Install one of {', '.join(VIEWERS)} to have the screen opened."
    if program == "remote-viewer":
        run.start([program, f"vnc://{screen.address}:{screen.port}"])
    else:
        run.start([program, f"{screen.address}::{screen.port}"])  # two colons: a port, not a display's number
    return ""
