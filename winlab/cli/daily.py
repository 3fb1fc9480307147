"""Notes that come with every run, such as that guests are emulated: a terminal shows each once a day."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import date

from winlab import files, settings

FILE = "notes-of-today"  # in the folder of state: the day, then the SHA-256 of each note, a line each


def is_new(text: str) -> bool:
    """Whether a note was not shown yet today. It counts as shown from now on, if that can be written."""
    file, today = settings.state_dir() / FILE, date.today().isoformat()
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        lines = []
    if lines[:1] != [today]:
        lines = [today]
    if digest in lines:
        return False
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_atomic(file, "\n".join([*lines, digest, ""]), mode=0o600)
    return True
