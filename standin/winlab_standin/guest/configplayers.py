"""Simulates configure.ps1 (see scripts.py): files are really written, values are in the stand-in's registry."""

from __future__ import annotations

import json
import re
from typing import Any

from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.registry import LINES, full
from winlab_standin.guest.workerfiles import digest, write

RECORD = "winlab/given.json"
KINDS = {"string": "REG_SZ", "dword": "REG_DWORD", "multistring": "REG_MULTI_SZ"}


def configure(machine: Machine, given: Settings) -> dict[str, Any]:
    """configure.ps1: make these the node's only files and registry values of add-ons."""
    files = {str(path): str(text) for path, text in (given.get("files") or {}).items()}
    for path in files:
        if not re.fullmatch(r'[A-Za-z]:\\[^/:*?"<>|]+', path) or re.search(r"\\\.\.?(\\|$)", path):
            raise ScriptError(f"settings.files: '{path}' is no absolute path.")
    rows = {rf"{row['key']}\{row['name']}": row for row in given.get("registry") or []}
    for place, row in rows.items():
        if row["type"] not in KINDS:
            kinds = "string, dword or multistring"
            raise ScriptError(f"settings.registry: '{place}' has the type '{row['type']}', not {kinds}.")
    before = _record(machine)
    changed = False
    for path, text in files.items():
        changed = write(machine.c(_inner(path)), text) or changed
    for path in before["files"]:
        there = machine.c(_inner(path))
        if path not in files and there.is_file():
            there.unlink()
            changed = True
    registry = machine.world.registry
    for row in rows.values():
        if _value(machine, row["key"], row["name"]) != f"{row['type']} {row['data']}":
            data = hex(int(row["data"], 16)) if row["type"] == "dword" else row["data"].replace("\n", LINES)
            registry.add(full(row["key"]) or row["key"], row["name"], KINDS[row["type"]], data)
            changed = True
    for row in before["registry"]:
        if rf"{row['key']}\{row['name']}" not in rows:
            changed = registry.delete(full(row["key"]) or row["key"], row["name"]) or changed
    names = [{"key": row["key"], "name": row["name"]} for row in rows.values()]
    write(machine.c(RECORD), json.dumps({"files": sorted(files), "registry": names}))
    return {"changed": changed}


def files(machine: Machine) -> dict[str, str]:
    """What status.ps1 reports about the files."""
    return {path: digest(machine.c(_inner(path))) for path in _record(machine)["files"]}


def values(machine: Machine) -> dict[str, str]:
    """What status.ps1 reports about the registry values."""
    rows = _record(machine)["registry"]
    return {rf"{row['key']}\{row['name']}": _value(machine, row["key"], row["name"]) for row in rows}


def _record(machine: Machine) -> dict[str, Any]:
    path = machine.c(RECORD)
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"files": [], "registry": []}
    return found


def _inner(path: str) -> str:
    return path[3:].replace("\\", "/")


def _value(machine: Machine, key: str, name: str) -> str:
    """A value as in settings.registry: its type, a space, its data; empty if it does not exist."""
    found = machine.world.registry.find(full(key) or key)
    kind, data = next((row for at, row in (found[1] if found else {}).items() if at.lower() == name.lower()), ("", ""))
    shown = {there: mine for mine, there in KINDS.items()}.get(kind)
    if shown is None:
        return ""
    text = f"{int(data, 16):08x}" if shown == "dword" else data
    return f"{shown} {text.replace(LINES, chr(10)) if shown == 'multistring' else text}"


PLAYERS: dict[str, Player] = {"configure.ps1": configure}
