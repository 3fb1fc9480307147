"""Where the data folders are: images/, unattend/, specs/ and docs/.

In a checkout they are at the top; in an installed wheel they are inside the package (``winlab/_data``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from winlab.errors import WinlabError

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The data folder *name* (``images``, ``unattend``, ``specs`` or ``docs``)."""
    for base in (_PACKAGE / "_data", _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise WinlabError(
        f"The data folder '{name}' is missing.",
        why=f"It is neither in '{_PACKAGE / '_data'}' nor beside '{_PACKAGE}'.",
        cure="Install winlab again.",
    )


@cache
def texts(name: str) -> Mapping[str, str]:
    """All files below a data folder by their paths in it, as text. Read once: they ship with winlab."""
    base = folder(name)
    contents = {
        path.relative_to(base).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(base.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(base).parts)
    }
    return MappingProxyType(contents)
