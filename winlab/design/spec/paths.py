"""Paths in a spec: made absolute, and kept inside the spec's own folder unless the user names them.

A spec may come from someone else, and the files that it names leave this host. The spec's file alone can therefore
name only files in its own folder; ``--set``, a flag or a variable may name any path, and ``--allow-path`` another
folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from winlab import account
from winlab.design.spec.draft import Draft, Place
from winlab.errors import UsageError

M = TypeVar("M", bound=BaseModel)


def roots(folder: Path | None, allow: Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders that a spec's files may be in, without links: its own, if it is a file, and those of *allow*.

    :raises UsageError: one can't be resolved.
    """
    own = [] if folder is None else [folder.resolve()]
    return (*own, *map(account.followed, allow))


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path, once its links are followed, is one of the folders or below one; these are without links."""
    real = path.resolve()
    return any(real.is_relative_to(folder) for folder in folders)


def absolute(section: M, folder: Path, draft: Draft, allowed: Sequence[Path]) -> M:
    """The spec with all paths absolute and without links: relative ones are relative to *folder*.

    :param allowed: where paths of the spec's file may lead (:func:`roots`).
    :raises UsageError: a path of the file leads outside, or can't be resolved.
    """
    return _Paths(folder, draft, allowed).section(section, ())


class _Paths:
    def __init__(self, folder: Path, draft: Draft, allowed: Sequence[Path]) -> None:
        self._folder, self._draft, self._allowed = folder, draft, allowed

    def section(self, section: M, place: Place) -> M:
        changed: dict[str, Any] = {}
        for name in type(section).model_fields:
            value = getattr(section, name)
            resolved = self._value(value, (*place, name))
            if resolved != value:
                changed[name] = resolved
        return section.model_copy(update=changed) if changed else section

    def _value(self, value: Any, place: Place) -> Any:
        if isinstance(value, Path):
            return self._path(value, place)
        if isinstance(value, BaseModel):
            return self.section(value, place)
        if isinstance(value, tuple):
            return tuple(self._value(one, (*place, number)) for number, one in enumerate(value))
        if isinstance(value, Mapping):
            return {name: self._value(one, (*place, name)) for name, one in value.items()}
        return value

    def _path(self, value: Path, place: Place) -> Path:
        try:
            path = (self._folder / value.expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, an unknown user, a NUL byte
            raise UsageError(f"{self._draft.told(place)}: the path can't be resolved.", why=str(error)) from error
        if self._draft.is_changed(place) or is_inside(path, self._allowed):
            return path
        raise UsageError(
            f"{self._draft.told(place)}: '{value}' is outside the spec's own folder.",
            why=f"It leads to '{path}'. Files that a spec names leave this host, and a spec may come from someone "
            "else.",
            cure=f"If that is intended, add --allow-path {path.parent}, or set the field yourself with --set.",
        )
