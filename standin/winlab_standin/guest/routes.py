"""Persistent routes: set in the stand-in's Linux, and stored in a file, as Windows stores them in its registry."""

from __future__ import annotations

import json
import time
from pathlib import Path

from winlab_standin.guest.base import StandinError, run
from winlab_standin.guest.kept import write

FILE = "standin-routes.json"  # in System32\\config: gateways by networks


def kept(config: Path) -> dict[str, str]:
    """The persistent routes: gateways by networks."""
    path = config / FILE
    found: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def keep(config: Path, wanted: dict[str, str]) -> None:
    """Set these again at each start."""
    write(config / FILE, json.dumps(wanted))


def have(wanted: dict[str, str], gone: list[str]) -> None:
    """Set the routes of *wanted* now, and remove those to *gone*.

    :raises StandinError: a gateway can't be reached.
    """
    for to in gone:
        run(["ip", "route", "del", to], check=False)
    for to, via in wanted.items():
        run(["ip", "route", "replace", to, "via", via])


def restore(config: Path) -> None:
    """Set them when Windows starts, once their gateways can be reached."""
    while wanted := kept(config):
        try:
            have(wanted, [])
            return
        except StandinError:
            time.sleep(2)
