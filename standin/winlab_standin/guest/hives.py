"""The registry for the PowerShell engine: a file with keys by their full names, also those of Cert: and WSMan:.

The engine rewrites the file whenever a script sets a value. :class:`Hives` makes it before a script, and applies its
changes to the stand-in's registry. A key that a script makes volatile exists until the next start of Windows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from winlab_standin.guest.kept import write
from winlab_standin.guest.registry import LINES, ROOTS, Registry

VOLATILE = "(volatile)"  # the mark of such a key, among its values
SERVICES = r"HKLM\SYSTEM\CurrentControlSet\Services"
SETUP = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State"
MEMORY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
# Keys that every Windows has, and that scripts may set values in
BASE = (
    r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon",
    r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System",
    r"HKLM\SYSTEM\Setup",
    r"Cert\LocalMachine\My",
    r"WSMan\localhost\Listener",
)
_SHORT = {long: short for short, long in ROOTS.items()}

Keys = dict[str, dict[str, Any]]


def _renamed(key: str, names: dict[str, str]) -> str:
    root, dash, rest = key.partition("\\")
    return f"{names.get(root, root)}{dash}{rest}"


def _shown(kind: str, data: str) -> str | int | list[str]:
    if kind == "REG_MULTI_SZ":
        return data.split(LINES)
    return int(data, 0) if kind in ("REG_DWORD", "REG_QWORD") else data


def _kept(value: Any) -> tuple[str, str]:
    """The type of a value that a script has set, and its data."""
    if isinstance(value, list):
        return "REG_MULTI_SZ", LINES.join(map(str, value))
    return ("REG_DWORD", str(int(value))) if isinstance(value, int) else ("REG_SZ", str(value))


class Hives:
    """The file at *path*, over *registry*; *volatile* is a file that is lost when the system restarts. *more* returns
    what the system itself has there: services, the number of its starts."""

    def __init__(self, path: Path, registry: Registry, volatile: Path, more: Callable[[], Keys]) -> None:
        self.path = path
        self.registry = registry
        self.volatile = volatile
        self.more = more
        self.seen: Keys = {}

    def write(self) -> None:
        """Write the current state into the file, if the file differs."""
        keys: Keys = {key: {} for key in BASE}
        for key, values in self.registry.everything().items():
            keys[_renamed(key, _SHORT)] = {name: _shown(*value) for name, value in values.items()}
        for key in json.loads(self.volatile.read_text()) if self.volatile.is_file() else []:
            keys.setdefault(key, {})[VOLATILE] = 1
        for key, values in self.more().items():
            keys.setdefault(key, {}).update(values)
        for key in list(keys):  # the keys above a key exist, too
            while (key := key.rpartition("\\")[0]) and key not in keys:
                keys[key] = {}
        if keys != self.seen or not self.path.is_file():
            write(self.path, json.dumps(keys))
        self.seen = keys

    def read(self) -> Keys:
        """Apply a script's changes of the file to the registry; returns what it has set, by key."""
        now: Keys = json.loads(self.path.read_text(encoding="utf-8-sig"))
        if now == self.seen:
            return {}
        for key, values in self.seen.items():
            if key not in now:
                self.registry.delete(_renamed(key, ROOTS))
            else:
                for name in values.keys() - now[key].keys():
                    self.registry.delete(_renamed(key, ROOTS), name)
        changed: Keys = {}
        for key, values in now.items():
            old = self.seen.get(key)
            different = {name: data for name, data in values.items() if old is None or old.get(name) != data}
            if old is None and VOLATILE not in values:
                self.registry.add(_renamed(key, ROOTS))
            for name, data in different.items():
                if name not in (VOLATILE, "ImagePath"):  # the service manager sets a service's command
                    self.registry.add(_renamed(key, ROOTS), name, *_kept(data))
            if different:
                changed[key] = different
        write(self.volatile, json.dumps([key for key, values in now.items() if VOLATILE in values]))
        self.seen = now
        return changed
