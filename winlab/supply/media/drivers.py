"""Staging virtio drivers from the virtio-win ISO onto the answer ISO.

Source: the layout of virtio-win (``<driver>/<release>/amd64/``). All files but debug symbols are taken: netkvm.inf
names programs; if they are missing, Windows silently installs no driver for the NIC.
"""

from __future__ import annotations

import io
from pathlib import Path

import pycdlib

from winlab.errors import UsageError
from winlab.supply import disk_format
from winlab.supply.media.windows_iso import ODD

DRIVERS = ("vioscsi", "viostor", "NetKVM", "vioserial", "Balloon", "viorng", "pvpanic")
# The drivers that Windows needs for its disk and its NIC, by the bus of its disk
NEEDED = {"virtio-scsi": ("vioscsi", "NetKVM"), "virtio-blk": ("viostor", "NetKVM"), "sata": ()}
GUEST_TOOLS = "virtio-win-guest-tools.exe"  # at the ISO's root: the drivers' services and QEMU's guest agent
RELEASES = {"2019": "2k19", "2022": "2k22", "2025": "2k25"}
# The folder that the answer file names, on one medium only: a driver reachable twice was reported to stop Setup. The
# Setup of 2025 ends if any driver in it can't be installed in Windows PE, so it has only those that Setup needs
SETUP = "drv"
LATER = "drv2"  # for bootstrap.ps1


def check(iso_path: Path) -> None:
    """Check that an ISO has virtio drivers for at least one release of Windows Server.

    :raises UsageError: it has none, or can't be read.
    """
    problems = []
    for release in RELEASES:
        try:
            stage(iso_path, release, "virtio-scsi")
        except UsageError as error:
            problems.append(error)
    if len(problems) == len(RELEASES):
        raise problems[-1]


def stage(iso_path: Path, release: str, bus: str, within: str = "") -> dict[str, bytes]:
    """The driver files and guest tools for Windows Server *release*, by their paths on the answer ISO.

    :param bus: of the node's disk; its drivers must be on the ISO.
    :param within: the folder of an installation medium that has virtio-win's layout; empty: the ISO itself has it.
    :raises UsageError: the ISO is not virtio-win, or has no drivers for that release.
    """
    disk_format.check(iso_path, "iso", str(iso_path))
    iso = pycdlib.PyCdlib()
    try:
        iso.open(str(iso_path))
    except Exception as error:  # pycdlib raises struct.error and others on damaged media
        raise UsageError(f"The driver ISO '{iso_path}' can't be read.", why=str(error)) from error
    try:
        tree = _Tree(iso, within)
        files: dict[str, bytes] = {}
        for driver in DRIVERS:
            for name in tree.names(f"/{driver}/{RELEASES[release]}/amd64"):
                if not name.lower().endswith(".pdb"):
                    content = tree.read(f"/{driver}/{RELEASES[release]}/amd64/{name}")
                    files[f"{SETUP if driver in NEEDED[bus] else LATER}/{driver}/{name}"] = content
        if GUEST_TOOLS in tree.names("/"):
            files[f"winlab/{GUEST_TOOLS}"] = tree.read(f"/{GUEST_TOOLS}")
    except ODD as error:
        raise UsageError(
            f"The driver ISO '{iso_path}' is damaged: its file system can't be read.",
            why=f"{type(error).__name__}: {error}",
            cure="Get it again, and compare its SHA-256.",
        ) from error
    finally:
        iso.close()
    missing = [driver for driver in NEEDED[bus] if not any(name.startswith(f"{SETUP}/{driver}/") for name in files)]
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

    def names(self, folder: str) -> list[str]:
        """The files in a folder; none if there is no such folder."""
        try:
            children = list(self.iso.list_children(**{self.kind: f"{self.within}{folder}".rstrip("/") or "/"}))
        except pycdlib.pycdlibexception.PyCdlibException:
            return []
        files = [child for child in children if child is not None and not child.is_dir()]
        how = "utf-8" if self.within else "utf-16-be"
        return [child.file_identifier().decode(how).split(";")[0] for child in files]

    def read(self, path: str) -> bytes:
        content = io.BytesIO()
        self.iso.get_file_from_iso_fp(content, **{self.kind: f"{self.within}{path}"})
        return content.getvalue()
