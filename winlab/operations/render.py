"""Writes the files that guests and libvirt would get."""

from __future__ import annotations

from pathlib import Path

from winlab import files
from winlab.design.plan.model import Plan
from winlab.design.render import folder as rendered
from winlab.errors import UsageError
from winlab.supply.images import expansion


def write(plan: Plan, folder: Path) -> list[Path]:
    """Write the files of :func:`winlab.design.render.folder.files` into *folder*, and return their paths.

    :raises UsageError: the folder can't be written, or holds something else.
    """
    written = []
    try:
        for name, content in rendered.files(plan, expansion.expand).items():
            path = folder / name
            _make(path.parent, folder)
            files.write_named(path, content)
            written.append(path)
    except OSError as error:
        raise UsageError(f"The files can't be written to '{folder}'.", why=str(error)) from error
    return written


def _make(place: Path, folder: Path) -> None:
    """Make a folder below *folder*. A link there may belong to another user and lead anywhere.

    :raises OSError: it can't be made, or one on the way to it is a link.
    """
    if place != folder:
        _make(place.parent, folder)
        if place.is_symlink():
            raise OSError(f"'{place}' is a link")
    place.mkdir(parents=True, exist_ok=True)
