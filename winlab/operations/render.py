"""Writes the files that guests and libvirt would get. In their folder is a list of them, so that the next plan there
replaces these and no others.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from winlab import documents, files
from winlab.design.plan.model import Plan
from winlab.design.render import folder as rendered
from winlab.errors import UsageError
from winlab.supply.images import expansion

LIST = ".winlab-plan.json"
LARGEST = 4 << 20  # bytes of the list, or of a file that may be winlab's
Written = dict[str, list[str]]  # files by their paths: the SHA-256 that each may have


def write(plan: Plan, folder: Path) -> list[Path]:
    """Write the files of :func:`winlab.design.render.folder.files` into *folder*, and return their paths.

    Those of an earlier plan there are removed.

    :raises UsageError: the folder can't be written, or a file in it is not an earlier plan's; nothing was touched.
    """
    contents = rendered.files(plan, expansion.expand)
    try:
        for name in contents:
            files.check_named(folder / name, stream=False)
        earlier = _earlier(folder)
        theirs = [name for name in contents if os.path.lexists(folder / name) and not _is_own(folder, name, earlier)]
        if theirs:
            raise UsageError(
                f"'{folder / theirs[0]}' would be overwritten, and is not as an earlier plan wrote it.",
                why=f"This is so for {len(theirs)} of {len(contents)} files.",
                cure="Name a folder that is new or empty, or remove what is in the way.",
            )
        made = {name: [hashlib.sha256(content).hexdigest()] for name, content in contents.items()}
        folder.mkdir(parents=True, exist_ok=True)
        # before anything else: also what an interrupted command wrote is winlab's
        _keep(folder, {name: [*earlier.get(name, []), *made.get(name, [])] for name in (*earlier, *made)})
        for name in earlier.keys() - contents.keys():
            if _is_own(folder, name, earlier):
                _remove(folder, name)
        written = []
        for name, content in contents.items():
            path = folder / name
            _make(path.parent, folder)
            files.write_named(path, content)
            written.append(path)
        _keep(folder, made)
    except OSError as error:
        raise UsageError(f"The files can't be written to '{folder}'.", why=str(error)) from error
    return written


def _keep(folder: Path, written: Written) -> None:
    files.write_named(folder / LIST, json.dumps(written, indent=1, sort_keys=True) + "\n")


def _earlier(folder: Path) -> Written:
    """What an earlier plan wrote, as the list says; anyone who may write to the folder can change that."""
    path = folder / LIST
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return {}
    try:
        listed = documents.from_json(path.read_bytes())
    except ValueError:
        return {}
    if not isinstance(listed, dict):
        return {}
    return {name: [str(one) for one in digests] for name, digests in listed.items() if isinstance(digests, list)}


def _is_own(folder: Path, name: str, earlier: Written) -> bool:
    """Whether a file is inside the folder, without a link on the way, and as an earlier plan wrote it."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or name not in earlier:
        return False
    if any(folder.joinpath(*parts[:end]).is_symlink() for end in range(1, len(parts) + 1)):
        return False
    path = folder / name
    if not path.is_file() or path.stat().st_size > LARGEST:
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() in earlier[name]


def _remove(folder: Path, name: str) -> None:
    """Remove a file, and the folders above it that are empty then."""
    path = folder / name
    path.unlink()
    with suppress(OSError):  # something of the user's is in it
        while path.parent != folder:
            path = path.parent
            path.rmdir()


def _make(place: Path, folder: Path) -> None:
    """Make a folder below *folder*. A link there may belong to another user and lead anywhere.

    :raises OSError: it can't be made, or one on the way to it is a link.
    """
    if place != folder:
        _make(place.parent, folder)
        if place.is_symlink():
            raise OSError(f"'{place}' is a link")
    place.mkdir(parents=True, exist_ok=True)
