"""Where the three data folders are: images/, unattend/ and specs/.

In a checkout they stand at the top; in an installed wheel they are inside the package (``winlab/_data``).
"""

from __future__ import annotations

from pathlib import Path

from winlab.errors import WinlabError

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The data folder *name* (``images``, ``unattend`` or ``specs``)."""
    for base in (_PACKAGE / "_data", _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise WinlabError(
        f"The data folder '{name}' is missing.",
        why=f"It is neither in '{_PACKAGE / '_data'}' nor beside '{_PACKAGE}'.",
        cure="Install winlab again.",
    )
