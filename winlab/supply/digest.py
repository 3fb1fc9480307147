"""The digest of a file that takes a while to read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from winlab.errors import UsageError
from winlab.events import Progress

BLOCK = 1 << 20


def sha256(path: Path, progress: Progress) -> str:
    """The SHA-256 of a file of any size.

    :raises UsageError: it can't be read.
    """
    made, have = hashlib.sha256(), 0
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                made.update(block)
                have += len(block)
                progress.say(f"reading {path.name}", have / max(size, 1))
    except OSError as error:
        raise UsageError(f"'{path}' can't be read.", why=str(error)) from error
    return made.hexdigest()
