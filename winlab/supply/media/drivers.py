"""Staging virtio drivers from the virtio-win ISO onto the answer ISO.

Source: the layout of virtio-win (``<driver>/<release>/amd64/``). All files but debug symbols are taken: netkvm.inf
names programs; if they are missing, Windows silently installs no driver for the NIC.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pycdlib

from winlab.errors import UsageError
from winlab.supply import disk_format
from winlab.supply.media import udf, windows_iso

DRIVERS = ("vioscsi", "viostor", "NetKVM", "vioserial", "Balloon", "viorng", "pvpanic")
# The drivers that Windows needs, by the bus of its disk and by its NIC
DISKS = {"virtio-scsi": ("vioscsi",), "virtio-blk": ("viostor",), "sata": ()}
NICS = {"virtio": ("NetKVM",), "e1000e": ()}
GUEST_TOOLS = "virtio-win-guest-tools.exe"  # at the ISO's root: the drivers' services and QEMU's guest agent
GUEST_AGENT = ("guest-agent", "qemu-ga-x86_64.msi")  # the agent's own package, in this folder
RELEASES = {"2019": "2k19", "2022": "2k22", "2025": "2k25"}
# The folder in which Setup looks by itself, at the root of every drive from C: on (Microsoft, KB2686316). So the answer
# file names none: a driver that is reachable twice was reported to stop Setup, as was a path that does not exist. The
# Setup of 2025 ends if any driver can't be installed in Windows PE, so the folder has only those that Setup needs
SETUP = "$WinPEDriver$"
LARGEST = 512 << 20  # bytes of all that is taken; virtio-win has some tens of MiB
LATER = "drv2"  # for bootstrap.ps1


def check(iso_path: Path) -> None:
    """Check that an ISO has virtio drivers for at least one release of Windows Server.

    :raises UsageError: it has none, or can't be read.
    """
    problems = []
    for release in RELEASES:
        try:
            stage(iso_path, release, "virtio-scsi", "virtio")
        except UsageError as error:
            problems.append(error)
    if len(problems) == len(RELEASES):
        raise problems[-1]


def stage(
    iso_path: Path,
    release: str,
    bus: str,
    nic: str,
    within: str = "",
    *,
    there: Callable[[], Collection[str]] = tuple,
) -> dict[str, bytes]:
    """The driver files, guest tools and guest agent for Windows Server *release*, by their paths on the answer ISO.

    :param bus: of the node's disk; its drivers must be on the ISO.
    :param nic: the node's; its driver must be on the ISO, too.
    :param within: the folder of an installation medium that has virtio-win's layout; empty: the ISO itself has it.
    :param there: says which drivers the installation medium has itself, in Windows PE and in the image to install.
        Setup is given none of these: it may end at a driver that it has already.
    :raises UsageError: the ISO is not virtio-win, or has no drivers for that release.
    """
    disk_format.check(iso_path, "iso", str(iso_path))
    needed = (*DISKS[bus], *NICS[nic])
    # a disk that Windows knows: then Setup gets no driver at all, because the NIC's can wait
    in_setup = set(needed).difference(there()) if DISKS[bus] else set()
    with windows_iso.opened(iso_path) as iso:
        tree = _Tree(iso, within)
        files: dict[str, bytes] = {}
        for driver in DRIVERS:
            folder = f"/{driver}/{RELEASES[release]}/amd64"
            for name in tree.names(folder):
                if not name.lower().endswith(".pdb"):
                    target = SETUP if driver in in_setup else LATER
                    files[f"{target}/{driver}/{name}"] = tree.read(f"{folder}/{name}")
        for name in tree.names("/"):
            if name.lower() == GUEST_TOOLS:
                files[f"winlab/{GUEST_TOOLS}"] = tree.read(f"/{name}")
        folder, agent = GUEST_AGENT
        for name in tree.names(f"/{folder}"):
            if name.lower() == agent:
                files[f"winlab/{agent}"] = tree.read(f"/{folder}/{name}")
    missing = [driver for driver in needed if not any(f"/{driver}/" in name for name in files)]
    if missing:
        raise UsageError(
            f"The driver ISO '{iso_path}' has no {' and no '.join(missing)} for Windows Server {release}.",
            cure="Use a current virtio-win ISO.",
        )
    return files


class _Tree:
    """The files of virtio-win: on an ISO of their own by Joliet, on an installation medium by UDF."""

    def __init__(self, iso: pycdlib.PyCdlib, within: str) -> None:
        self.iso = iso
        self.within = within
        self.kind = "udf_path" if within else "joliet_path"
        self.room = LARGEST

    def names(self, folder: str) -> list[str]:
        """The files in a folder, which may be in any case; none if there is no such folder."""
        real = udf.find(self.iso, f"{self.within}{folder}".rstrip("/") or "/", self.kind) if self._has() else None
        if real is None:
            return []
        children = list(self.iso.list_children(**{self.kind: real}))
        return [udf.name_of(child, self.kind) for child in children if child is not None and not child.is_dir()]

    def read(self, path: str) -> bytes:
        """A file that :meth:`names` gave.

        :raises UsageError: the drivers are larger than drivers can be.
        """
        real: dict[str, Any] = {self.kind: udf.find(self.iso, f"{self.within}{path}", self.kind)}
        self.room -= int(self.iso.get_record(**real).get_data_length())
        if self.room < 0:
            raise UsageError(
                "The drivers on the driver ISO are too large.",
                why=f"Those of one release have at most {LARGEST >> 20} MiB.",
                cure="Use a current virtio-win ISO.",
            )
        content = io.BytesIO()
        self.iso.get_file_from_iso_fp(content, **real)
        return content.getvalue()

    def _has(self) -> bool:
        return bool(self.iso.has_udf() if self.kind == "udf_path" else self.iso.has_joliet())
