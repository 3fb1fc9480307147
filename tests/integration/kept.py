"""What a run of the tests can leave for the next one (``--keep-labs``): the shared labs, and what they are made of.

A run without the option removes what was kept, and starts from nothing.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TypeVar

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build/kept-labs"
T = TypeVar("T")


class Kept:
    """Folders and facts of this run.

    :param keeps: they stay for the next run, and this one uses what the last one left.
    """

    def __init__(self, folders: pytest.TempPathFactory, *, keeps: bool) -> None:
        self.keeps = keeps
        self._folders = folders

    def folder(self, name: str) -> Path:
        """A folder of that name; what the last run kept in it is still there if this run keeps it, too."""
        if not self.keeps:
            return self._folders.mktemp(name)
        path = FOLDER / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def note(self, made: object) -> None:
        """Write down for the next run what was made."""
        if self.keeps:
            (FOLDER / f"{type(made).__name__}.pickle").write_bytes(pickle.dumps(made))

    def recall(self, kind: type[T]) -> T | None:
        """What the last run that kept anything noted."""
        path = FOLDER / f"{kind.__name__}.pickle"
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def forget(self) -> None:
        """Remove what the last run kept, and its secrets."""
        shutil.rmtree(FOLDER, ignore_errors=True)
