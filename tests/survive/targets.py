"""The processes that are killed besides winlab: the host's daemons, and the QEMU of a lab's guest."""

from __future__ import annotations

from pathlib import Path

# The program, and words of its command line that distinguish it from others of the same name
DAEMONS = {
    "libvirtd": ("libvirtd", ""),
    "ovsdb-server": ("ovsdb-server", "conf.db"),  # Open vSwitch's own
    "ovsdb-server-nb": ("ovsdb-server", "ovnnb_db"),  # OVN's two
    "ovsdb-server-sb": ("ovsdb-server", "ovnsb_db"),
    "ovn-northd": ("ovn-northd", ""),
    "ovs-vswitchd": ("ovs-vswitchd", ""),
    "ovn-controller": ("ovn-controller", ""),
}


def find(target: str, proc: Path = Path("/proc")) -> list[int]:
    """The ids of a target's processes: a daemon's name, or ``guest LAB`` for the machines of a lab."""
    if target.startswith("guest "):
        return [pid for pid, words in _processes(proc) if f"guest=winlab-{target.removeprefix('guest ')}." in words]
    program, word = DAEMONS[target]
    return [pid for pid, words in _processes(proc) if _program(words) == program and word in words]


def _program(words: str) -> str:
    """The program's name; the process that watches over a daemon calls itself ``ovsdb-server: monitoring ...``."""
    return Path(words.split(" ")[0]).name


def marked(mark: str, proc: Path = Path("/proc")) -> list[tuple[int, str]]:
    """The processes that have *mark* in their environment, with their command lines: what a killed command left."""
    rows = []
    for pid, words in _processes(proc):
        try:
            environment = (proc / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment:
            rows.append((pid, words))
    return rows


def _processes(proc: Path) -> list[tuple[int, str]]:
    rows = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended
            continue
        if words:
            rows.append((int(folder.name), words))
    return rows
