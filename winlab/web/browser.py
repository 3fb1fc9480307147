"""The user's browser."""

from __future__ import annotations

import os

from winlab import run

BROWSERS = ("xdg-open", "x-www-browser", "sensible-browser", "firefox", "chromium", "google-chrome")


def find() -> str | None:
    """A program that opens URLs in a graphical browser; None: there is none, or no display.

    ``BROWSER`` names one, as for xdg-open. Editors set it that show the page on another computer.
    """
    named = os.environ.get("BROWSER", "").split(":")[0]
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    wanted = ((named,) if named else ()) + (BROWSERS if has_display else ())
    return next((program for program in wanted if run.find(program)), None)


def open_url(url: str) -> bool:
    """Open a URL; false if there is no browser. Other users see it in the list of processes."""
    program = find()
    if program is not None:
        run.start([program, url])
    return program is not None
