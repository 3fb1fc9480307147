"""Names of files that Windows can have: a folder of the user's may have been made on Linux.

Sources: Microsoft, "Naming Files, Paths, and Namespaces"; and what a CD can hold, which brings the files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from winlab.errors import UsageError

LONGEST = 64  # bytes in UTF-8: Joliet allows as many units of UTF-16, and pycdlib counts bytes
SHOWN = 20
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_DEVICES = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE)


def check(folders: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Check that Windows can have all of these files.

    :param folders: what each folder is called in messages (``workers.files``), and the paths in it, with slashes.
    :raises UsageError: it can't; the message has all names at once.
    """
    found = [f"{called}: {problem}" for called, names in folders for problem in _problems(names)]
    if not found:
        return
    shown = found[:SHOWN] + ([f"{len(found) - SHOWN} more"] if len(found) > SHOWN else [])
    raise UsageError(
        "Windows can't have files that the spec names, by their names.",
        why="\n".join(shown),
        cure="Rename or remove them.",
    )


def too_long(name: str) -> bool:
    """Whether a part of this path is too long for a CD."""
    return any(len(part.encode("utf-8", "surrogateescape")) > LONGEST for part in PurePosixPath(name).parts)


def _problems(names: Iterable[str]) -> Iterator[str]:
    """A sentence for each name; a folder's name counts once."""
    taken: dict[str, str] = {}  # by what Windows compares: the path without case
    for name in names:
        path = PurePosixPath(name)
        for place in (*reversed(path.parents), path):
            text, key = str(place), unicodedata.normalize("NFC", str(place)).upper()
            if text == "." or taken.get(key) == text:
                continue
            if key in taken:
                yield f"{_shown(text)} and {_shown(taken[key])} are one name to Windows."
                continue
            taken[key] = text
            if why := _wrong(place.name):
                yield f"{_shown(text)} {why}."


def _wrong(name: str) -> str:
    """What is wrong with one part of a path; empty if nothing is."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if found := _FORBIDDEN.search(name):
        return f"has {found[0]!r} in it"
    if name.endswith((".", " ")):
        return "ends with a full stop or blank"
    if _DEVICES.fullmatch(name.partition(".")[0].rstrip(" ")):
        return "is the name of a device"
    return f"has more than {LONGEST} bytes in UTF-8" if size > LONGEST else ""


def _shown(text: str) -> str:
    return repr(text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
