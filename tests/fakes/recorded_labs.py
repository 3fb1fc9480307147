"""A fake of winlab's API for tests of the plugin of pytest: a lab is a file, so that several processes see the same.

Every call is a line in the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from winlab.errors import HostError, NotFoundError


def _world() -> Path:
    return Path(os.environ["RECORDED_LABS"])


def log() -> list[str]:
    """What was done so far."""
    path = _world() / "log"
    return path.read_text().splitlines() if path.exists() else []


def there() -> set[str]:
    """The labs and snapshots that exist."""
    return {path.name for path in _world().iterdir()} - {"log"}


def note(*words: object) -> None:
    """Add a line to the log; the verbs in ``RECORDED_LABS_BROKEN`` then fail."""
    with (_world() / "log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")
    if words[0] in os.environ.get("RECORDED_LABS_BROKEN", "").split():
        raise HostError(f"The {words[0]} failed.", cure="Try again.")


def _remove(name: str) -> None:
    if name not in there():
        raise NotFoundError(f"There is no '{name}'.")
    (_world() / name).unlink()


class Spec:
    """As winlab.Spec; a loaded one is a text."""

    @staticmethod
    def load(source: str, changes: Any, *, rehearse: bool) -> str:
        return f"{source} {[*changes]} {rehearse}"


class Snapshots:
    """As winlab.Snapshots."""

    def __init__(self, lab: str) -> None:
        self.lab = lab

    def _id(self, name: str) -> str:
        return name if "@" in name else f"{self.lab}@{name}"

    def save(self, name: str) -> None:
        note("save", self._id(name))
        (_world() / self._id(name)).touch()

    def _rows(self) -> Iterator[Any]:
        for name in sorted(there()):
            if "@" in name:
                systems = {"windows_nodes": ["node-1"], "linux_nodes": ["controller-1"]}
                plan = SimpleNamespace(
                    **{
                        key: lambda found=value: [SimpleNamespace(name=one) for one in found]
                        for key, value in systems.items()
                    }
                )
                yield SimpleNamespace(id=name, record=SimpleNamespace(plan=plan), problem="")

    def list(self) -> list[Any]:
        return [row for row in self._rows() if row.id.startswith(f"{self.lab}@")]

    def show(self, name: str) -> Any:
        for row in self._rows():
            if row.id == self._id(name):
                return row
        raise NotFoundError(f"There is no snapshot '{self._id(name)}'.")

    def reset(self, name: str) -> Any:
        assert {self.lab, self._id(name)} <= there()
        note("reset", self.lab, self._id(name))
        return SimpleNamespace(resumed=1.0)

    def create_from(self, name: str) -> Any:
        assert self.lab not in there()
        self.show(name)
        note("copy", self.lab, self._id(name))
        (_world() / self.lab).touch()
        return SimpleNamespace(resumed=0.0 if name == "lab@off" else 1.0)

    def delete(self, name: str) -> None:
        note("delete", self._id(name))
        _remove(self._id(name))


class Lab:
    """As winlab.Lab."""

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def known_names() -> list[str]:
        return sorted(name for name in there() if "@" not in name)

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.name)

    def machines(self) -> list[str]:
        return ["node-1"] if self.name in there() else []

    def plan(self, spec: str) -> str:
        return spec

    def create(self, plan: str) -> None:
        (_world() / self.name).touch()
        note("create", self.name, plan)
        time.sleep(float(os.environ.get("RECORDED_LABS_SLOW", "0")))

    def destroy(self) -> None:
        note("destroy", self.name)
        _remove(self.name)

    def start(self) -> None:
        note("start", self.name)

    def stop(self, nodes: list[str], *, force: bool) -> None:
        note("stop", self.name, *nodes, force)

    def test_readiness(self) -> Any:
        return SimpleNamespace(failed=[])

    def support(self, to: Path, *, failed: BaseException | None) -> Path:
        note("support", self.name)
        to.write_text(repr(failed))
        return to

    def kubectl(self, *words: str) -> str:
        return f"kubectl {' '.join(words)} of {self.name}"

    def node(self, name: str) -> Any:
        return SimpleNamespace(
            name=name, execute=lambda words: SimpleNamespace(exit_code=0, stdout=f"{words} on {name} of {self.name}")
        )
