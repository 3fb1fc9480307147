"""The names of volumes that belong to one lab: ``<lab>.<node>.<what>``, and the CDs of ``load``. Pure.

Volumes carry no tags, so winlab knows its own by these names alone. Others in the pool may begin like them: a clone's
disk, ``lab.node-1.disk-clone.qcow2``, or a user's ``lab.qcow2``. No command touches those.
"""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?P<lab>[a-z][a-z0-9-]*)\."
    r"([a-z][a-z0-9-]*\."
    r"(disk\.qcow2|seed\.iso|answer\.iso|media\.qcow2|store\.qcow2|push\.iso|serial\.log(\.[0-9]+)?)"
    r"|load-[a-z]+\.iso)"
)


def lab_of(name: str) -> str | None:
    """The lab that a volume belongs to; None if winlab makes no volume of this name for a lab."""
    match = _NAME.fullmatch(name)
    return match["lab"] if match is not None and not name.startswith("base-") else None


def is_made(name: str) -> bool:
    """Whether winlab makes volumes of this name for labs."""
    return lab_of(name) is not None
