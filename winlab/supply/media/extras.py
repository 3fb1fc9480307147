"""What users add to their Windows nodes: scripts, files, drivers. It goes onto the answer ISO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Material, Stock
from winlab.errors import UsageError
from winlab.supply.media import drivers

SCRIPTS = "winlab/scripts"
FILES = "winlab/files"
LONGEST_INF = 4 << 20  # bytes


def stage(node: WindowsNode, stock: Stock) -> dict[str, Path]:
    """The user's own files by their paths on the node's answer ISO.

    :raises UsageError: a file is unsuitable.
    :raises NotFoundError: a file no longer exists.
    """
    windows, staged = node.windows, dict[str, Path]()
    for number, script in enumerate(windows.scripts, 1):
        if not script.name.lower().endswith(".ps1"):
            raise UsageError(
                f"'{script.name}' can't be run in Windows nodes.",
                why="Its name does not end in .ps1.",
                cure="workers.scripts takes PowerShell scripts.",
            )
        staged[f"{SCRIPTS}/{number:02}-{script.name}"] = stock.require(script.sha256)
    staged |= _tree(windows.files, FILES, stock)
    for number, folder in enumerate(windows.extra_drivers, 1):
        tree = _tree(folder, f"own-{number}", stock)
        if not any(map(_is_inf, tree)):
            raise UsageError(
                f"Folder {number} of workers.extra_drivers has no drivers.",
                why="It has no .inf file.",
                cure="Give the folder that a driver's package was unpacked to.",
            )
        # Windows PE may need those for a disk that it does not know; others only put the installation at risk
        for_disks = any(_is_for_disks(path) for name, path in tree.items() if _is_inf(name))
        target = drivers.SETUP if for_disks and drivers.DISKS[node.bus] else drivers.LATER
        staged |= {f"{target}/{name}": path for name, path in tree.items()}
    return staged


def _is_inf(name: str) -> bool:
    return name.lower().endswith(".inf")


def _is_for_disks(inf: Path) -> bool:
    """Whether a driver is for a disk's controller, by its class (Microsoft, System-Defined Device Setup Classes)."""
    with inf.open("rb") as file:
        content = file.read(LONGEST_INF)
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1", "replace")
    return re.search(r"^\s*Class\s*=\s*\"?(SCSIAdapter|hdc)\b", text, re.IGNORECASE | re.MULTILINE) is not None


def _tree(files: Iterable[Material], target: str, stock: Stock) -> dict[str, Path]:
    tree: dict[str, Path] = {}
    for material in files:
        tree[f"{target}/{material.name}"] = stock.require(material.sha256)
    return tree
