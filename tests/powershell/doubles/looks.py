"""What a script has left on a machine: every difference from before, in a comparable form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powershell.doubles.machine import Machine, Told

PLAIN = (
    "features",
    "rules",
    "routes",
    "time_source",
    "timezone",
    "shutdown",
    "networks",
    "endpoints",
    "policies",
    "users",
)

LOGS = r"C:\winlab\logs"


def look(machine: Machine) -> dict[str, str]:
    """Everything of a machine that a script may change, by name, without the scripts' own reports."""
    known = {hashlib.sha256(path.read_bytes()).digest(): path for path in machine.d.rglob("*") if path.is_file()}
    return dict(_of_state(machine)) | dict(_of_registry(machine)) | dict(_of_files(machine, known))


def _of_state(machine: Machine) -> Iterator[tuple[str, str]]:
    state = machine.state()
    for name, row in state["services"].items():
        yield f"service {name}", " ".join([row["status"], f"{row['start']}", *row["depends"]])
    for name, row in state["tasks"].items():
        yield f"task {name}", "; ".join(row[part] for part in ("execute", "arguments", "trigger", "who", "settings"))
    for kind in PLAIN:
        value = state.get(kind)
        if isinstance(value, dict):
            for name, one in value.items():
                yield f"{kind} {name}", f"{one}"
        elif value:
            yield kind, json.dumps(value, sort_keys=True, ensure_ascii=False)
    for kind in ("routes", "images"):
        path = machine.folder / f"{kind}.txt"
        if path.exists() and path.read_text():
            yield kind, path.read_text()


def _of_registry(machine: Machine) -> Iterator[tuple[str, str]]:
    keys = json.loads((machine.folder / "registry.json").read_text())
    for key, values in keys.items():
        if any(other.startswith(f"{key}\\") for other in keys):
            continue
        if not values:
            yield key, "a key"
        for name, value in values.items():
            yield f"{key}\\{name}", f"{value}"


def _of_files(machine: Machine, known: dict[bytes, Path]) -> Iterator[tuple[str, str]]:
    for path in sorted(machine.c.rglob("*")):
        name = "C:\\" + str(path.relative_to(machine.c)).replace("/", "\\")
        if name.startswith(LOGS):
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                yield name, "an empty folder"
            continue
        if path.stat().st_size > 1 << 24:  # a file with nothing in it, which fills a disk
            yield name, f"{path.stat().st_size} bytes"
            continue
        content = path.read_bytes()
        origin = known.get(hashlib.sha256(content).digest())
        text = (
            f"= D:\\{origin.relative_to(machine.d)}".replace("/", "\\")
            if origin
            else content.decode("utf-8", "replace")
        )
        yield name, text if path.stat().st_mode & 0o200 else f"{text} (read-only)"


class Left:
    """The differences of *machine* from this snapshot."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.before = look(machine)
        self._noted = len(machine.notes())

    def changes(self) -> dict[str, str | None]:
        """Each thing that is new, changed, or gone (None)."""
        now = look(self.machine)
        names = sorted(self.before.keys() | now.keys())
        return {name: now.get(name) for name in names if now.get(name) != self.before.get(name)}

    def notes(self, kind: str = "") -> list[str]:
        """The script's calls of Windows, in order; only those that begin with *kind*.

        HNS' requests have their fields sorted: PowerShell's tables have no order.
        """
        every = (_sorted(line) for line in self.machine.notes()[self._noted :].splitlines())
        return [line for line in every if line.startswith(kind)]


def _sorted(line: str) -> str:
    head, brace, rest = line.partition(" {")
    return f"{head} {json.dumps(json.loads('{' + rest), sort_keys=True)}" if brace and head.startswith("hns ") else line


FLUSH = "flush C"
ONLY_LOOK = ("logs", "probe", "sealed", "status")


@dataclass
class Ran:
    """A run of a script, and what it left.

    :param every: what it asked of Windows; ``notes`` is without the flushes of its disk.
    """

    told: Told
    changes: dict[str, str | None]
    every: list[str]

    @property
    def notes(self) -> list[str]:
        return [line for line in self.every if line != FLUSH]

    @property
    def messages(self) -> str:
        """Its messages for users, on its standard error."""
        return "\n".join(self.told.err)


def act(
    machine: Machine, script: str, settings: object = None, fail: tuple[str, int] | None = None, **result: Any
) -> Ran:
    """Run a worker script that succeeds, with at least these values in its result."""
    left = Left(machine)
    told = machine.run(script, settings, fail=fail)
    assert told.code == 0, (told.out, told.err)
    assert isinstance(told.result, dict), told.out
    assert not told.err
    assert {name: told.result.get(name) for name in result} == result
    ran = Ran(told, left.changes(), left.notes())
    if script in ONLY_LOOK:
        assert FLUSH not in ran.every
    else:
        assert ran.every[-1] == FLUSH  # what it reports as done survives a power cut
    return ran


def refuse(machine: Machine, script: str, settings: object, text: str, fail: tuple[str, int] | None = None) -> Ran:
    """Run a worker script that refuses for the reason *text*."""
    left = Left(machine)
    told = machine.run(script, settings, fail=fail)
    assert told.code == 1, (told.out, told.err)
    assert told.result is None
    assert text in "\n".join(told.err), told.err
    return Ran(told, left.changes(), left.notes())
