"""SHA-256 digests of files: those of large files are cached by path, size, time and inode.

::

    <cache>/digests.json    {"/srv/server.iso": [size, mtime in ns, inode, "<sha256>"], ...}

Nothing depends on this cache: without it files are read again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from winlab import documents, files, settings
from winlab.errors import UsageError
from winlab.events import Progress

SMALL = 8 << 20  # bytes: read each time


def sha256(path: Path, progress: Progress) -> str:
    """The SHA-256 of a file.

    :raises UsageError: it can't be read.
    """
    try:
        about = path.stat()
        if not path.is_file():
            raise OSError("it is not a file")
        if about.st_size <= SMALL:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"'{path}' can't be read.", why=str(error)) from error
    mark = [about.st_size, about.st_mtime_ns, about.st_ino]
    known = _read().get(str(path), [])
    if known[:3] == mark:
        return str(known[3])
    digest = files.sha256(path, progress)
    _remember(path, [*mark, digest])
    return digest


def remembered(path: Path) -> str | None:
    """The SHA-256 that a file had when it was last read; None if it never was."""
    known = _read().get(str(path))
    return None if known is None else str(known[3])


def _file() -> Path:
    return settings.cache_dir() / "digests.json"


def _read() -> dict[str, list[int | str]]:
    try:
        rows = documents.from_json(_file().read_text(encoding="utf-8"))
        return {str(path): list(row) for path, row in rows.items() if len(row) == 4}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(path: Path, row: list[int | str]) -> None:
    with suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_atomic(file, json.dumps({**_read(), str(path): row}, indent=1) + "\n")
