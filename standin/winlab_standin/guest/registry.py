"""The registry of the stand-in: keys and values in one JSON file; names keep their case, but it does not matter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from winlab_standin.guest.kept import locked, write
from winlab_standin.guest.releases import Windows

ROOTS = {
    "HKLM": "HKEY_LOCAL_MACHINE",
    "HKCU": "HKEY_CURRENT_USER",
    "HKU": "HKEY_USERS",
    "HKCR": "HKEY_CLASSES_ROOT",
    "HKCC": "HKEY_CURRENT_CONFIG",
}
TYPES = ("REG_SZ", "REG_MULTI_SZ", "REG_DWORD", "REG_QWORD", "REG_BINARY", "REG_EXPAND_SZ", "REG_NONE")
LINES = "\\0"  # between the lines of a REG_MULTI_SZ, as reg.exe shows it
_NT = r"HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
WINRM = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\WinRM"
DELAYED = "DelayedAutostart"

Values = dict[str, list[str]]


def _value(data: str | int) -> list[str]:
    return ["REG_DWORD", hex(data)] if isinstance(data, int) else ["REG_SZ", data]


def _facts(windows: Windows) -> dict[str, Values]:
    """The first content: the release, and that WinRM starts late."""
    return {
        _NT: {name: _value(data) for name, data in windows.facts().items()},
        WINRM: {"Start": _value(2), DELAYED: _value(1)},
    }


def full(key: str) -> str | None:
    """The key with its root's full name; None if there is no such root."""
    root, _, rest = key.strip().strip('"').rstrip("\\").partition("\\")
    long = ROOTS.get(root.upper(), root.upper())
    if long not in ROOTS.values():
        return None
    return f"{long}\\{rest}" if rest else long


class Registry:
    """Keys and values, stored in a file. Every change is written at once; before the first change, the content is that
    of a new *windows*."""

    def __init__(self, path: Path, windows: Windows | None = None) -> None:
        self.path = path
        self.windows = windows or Windows()

    def _load(self) -> dict[str, Values]:
        if self.path.is_file():
            loaded: dict[str, Values] = json.loads(self.path.read_text(encoding="utf-8"))
            return loaded
        return _facts(self.windows)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Values]]:
        """The keys, to change them; others wait meanwhile."""
        with locked(self.path):
            keys = self._load()
            yield keys
            write(self.path, json.dumps(keys, indent=1))

    def everything(self) -> dict[str, Values]:
        """All keys by their full names, with their values."""
        return self._load()

    def find(self, key: str) -> tuple[str, Values] | None:
        """A key as it is written, and its values."""
        wanted = key.lower()
        keys = self._load()
        for name, values in keys.items():
            if name.lower() == wanted:
                return name, values
        inside = any(name.lower().startswith(f"{wanted}\\") for name in keys)
        return (key, {}) if inside else None

    def children(self, key: str) -> list[str]:
        """The keys directly below *key*."""
        depth = key.count("\\") + 1
        below = [name for name in self._load() if name.lower().startswith(f"{key.lower()}\\")]
        return sorted({"\\".join(name.split("\\")[: depth + 1]) for name in below})

    def get(self, key: str, name: str) -> str | None:
        """The data of a value."""
        found = self.find(full(key) or key)
        values = found[1] if found else {}
        return next((data for other, (_, data) in values.items() if other.lower() == name.lower()), None)

    def add(self, key: str, name: str | None = None, kind: str = "REG_SZ", data: str = "") -> None:
        """Make a key, and set a value in it if *name* is given ('' is the default value)."""
        with self._changing() as keys:
            place = next((other for other in keys if other.lower() == key.lower()), key)
            values = keys.setdefault(place, {})
            if name is not None:
                old = next((other for other in values if other.lower() == name.lower()), name)
                values[old] = [kind, hex(int(data, 0)) if kind in ("REG_DWORD", "REG_QWORD") else data]

    def delete(self, key: str, name: str | None = None) -> bool:
        """Remove a value, or a key with everything below it; returns whether it existed."""
        lower = key.lower()
        with self._changing() as keys:
            before = json.dumps(keys)
            for place in list(keys):
                if name is None and (place.lower() == lower or place.lower().startswith(f"{lower}\\")):
                    del keys[place]
                elif name is not None and place.lower() == lower:
                    keys[place] = {other: data for other, data in keys[place].items() if other.lower() != name.lower()}
            return json.dumps(keys) != before
