"""The names of volumes that belong to one lab: ``<lab>.<node>.<what>``, and the CDs of ``load``. Pure.

Volumes carry no tags, so winlab knows its own by these names alone. Others in the pool may begin like them: a clone's
disk, ``lab.node-1.disk-clone.qcow2``, or a user's ``lab.qcow2``. No command touches those.

A machine's disk has generations: ``disk.qcow2``, which plans name, then ``disk-2.qcow2``, ``disk-3.qcow2`` and so on.
Each later one was made over an earlier one that must not change any more, or beside it. So has ``store.qcow2``.

A snapshot's volumes are named ``<lab>@<snapshot>.<node>.<what>``. They are not the lab's, and may outlive it. The disks
of an imported snapshot are named as those of a lab ``<lab>--<snapshot>``, which no lab can be called.
"""

from __future__ import annotations

import re

_WORD = "[a-z][a-z0-9-]*"
_NUMBER = "[2-9]|[1-9][0-9]+"
_NAME = re.compile(
    rf"(?P<lab>{_WORD})\."
    rf"((?P<node>{_WORD})\."
    rf"((disk|store)(-({_NUMBER}))?\.qcow2|seed\.iso|answer\.iso|(media|export)\.qcow2|push\.iso|serial\.log(\.[0-9]+)?|restore)"
    r"|load-[a-z]+\.iso)"
)
_DISK = re.compile(rf"(?P<stem>.+\.(disk|store))(-(?P<number>{_NUMBER}))?\.qcow2")
_SNAPSHOT = re.compile(
    rf"(?P<lab>{_WORD})@(?P<snapshot>{_WORD})\.{_WORD}\."
    r"((disk|store|media|export|cd-[a-z]+)\.qcow2|(seed|answer|push)\.iso|memory|state|save|xml)"
)


def lab_of(name: str) -> str | None:
    """The lab that a volume belongs to; None if winlab makes no volume of this name for a lab."""
    match = _NAME.fullmatch(name)
    return match["lab"] if match is not None and not name.startswith("base-") else None


def node_of(name: str, lab: str) -> str | None:
    """The node of a lab that a volume belongs to; None if it belongs to none of them."""
    match = _NAME.fullmatch(name)
    return match["node"] if match is not None and lab_of(name) == lab else None


def is_made(name: str) -> bool:
    """Whether winlab makes volumes of this name for labs."""
    return lab_of(name) is not None


def owner(name: str) -> str:
    """Whose a volume is: a lab, or LAB@SNAPSHOT; of another volume, its own name."""
    return name.partition(".")[0] if is_made(name) or snapshot_of(name) else name


def generation(name: str) -> int:
    """Which generation of a machine's disk or store a volume is, from 1 on; 0 if it is neither."""
    match = _disk(name)
    return 0 if match is None else int(match["number"] or 1)


def first(name: str) -> str:
    """The name that plans have for a volume of any generation; of another volume, its own name."""
    match = _disk(name)
    return name if match is None else f"{match['stem']}.qcow2"


def of_generation(name: str, number: int) -> str:
    """The name of a generation of a disk or store. *name* is that of any other generation."""
    planned = first(name)
    return planned if number == 1 else f"{planned.removesuffix('.qcow2')}-{number}.qcow2"


def _disk(name: str) -> re.Match[str] | None:
    return _DISK.fullmatch(name) if is_made(name) else None


def snapshot_of(name: str) -> tuple[str, str] | None:
    """The snapshot that a volume belongs to, as its lab and its own name; None if it is not a snapshot's."""
    match = _SNAPSHOT.fullmatch(name)
    return (match["lab"], match["snapshot"]) if match is not None and not name.startswith("base-") else None


def imported(lab: str, snapshot: str) -> str:
    """What stands for the lab in the names of an imported snapshot's disks."""
    return f"{lab}--{snapshot}"
