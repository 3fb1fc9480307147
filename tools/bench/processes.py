"""What the QEMU processes of labs take: memory and processor time, as /proc shows them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # a second
PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.M)


def emulators(begin: str, proc: Path = Path("/proc")) -> list[Path]:
    """The folders of the QEMU processes whose lab's name and node begin so: ``lab.`` is the lab itself."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if f"guest=winlab-{begin}".encode() in words:
            found.append(folder)
    return found


def memory(folders: Iterable[Path]) -> float:
    """The proportional set size of processes, in MB: a page that several share counts once.

    :raises PermissionError: only root may see that of another user's processes.
    """
    texts = ((folder / "smaps_rollup").read_text(encoding="ascii") for folder in folders)
    return sum(int(size) for text in texts for size in PSS.findall(text)) * 1024 / 1e6


def seconds(folders: Iterable[Path]) -> float:
    """The processor time of processes, in seconds."""
    texts = ((folder / "stat").read_text(encoding="utf-8", errors="replace") for folder in folders)
    # source: proc(5): utime and stime are the fields 14 and 15; the name in parentheses may contain spaces
    return sum(sum(map(int, text.rpartition(")")[2].split()[11:13])) for text in texts) / TICKS
