"""Staging virtio drivers from the virtio-win ISO onto the answer ISO.

Source: the layout of virtio-win (``<driver>/<release>/amd64/``). All files but debug symbols are taken: netkvm.inf
names programs, without which the adapter silently stays without a driver.
"""

from __future__ import annotations

import io
from pathlib import Path

import pycdlib

from winlab.errors import UsageError

DRIVERS = ("vioscsi", "viostor", "NetKVM", "vioserial", "Balloon", "viorng", "pvpanic")
NEEDED = ("vioscsi", "NetKVM")
RELEASES = {"2019": "2k19", "2022": "2k22", "2025": "2k25"}
TARGET = "drv"  # on one medium only: a driver reachable twice was reported to stop Setup


def stage(iso_path: Path, release: str) -> dict[str, bytes]:
    """The driver files for Windows Server *release*, by their paths on the answer ISO.

    :raises UsageError: the ISO is not virtio-win, or has no drivers for that release.
    """
    iso = pycdlib.PyCdlib()
    try:
        iso.open(str(iso_path))
    except Exception as error:  # pycdlib raises struct.error and others on damaged media
        raise UsageError(f"The driver ISO '{iso_path}' can't be read.", why=str(error)) from error
    try:
        files: dict[str, bytes] = {}
        for driver in DRIVERS:
            folder = f"/{driver}/{RELEASES[release]}/amd64"
            files.update(_read(iso, folder, f"{TARGET}/{driver}"))
    finally:
        iso.close()
    missing = [driver for driver in NEEDED if not any(name.startswith(f"{TARGET}/{driver}/") for name in files)]
    if missing:
        raise UsageError(
            f"The driver ISO '{iso_path}' has no {' and no '.join(missing)} for Windows Server {release}.",
            cure="Take a current virtio-win ISO.",
        )
    return files


def _read(iso: pycdlib.PyCdlib, folder: str, target: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        children = list(iso.list_children(joliet_path=folder))
    except pycdlib.pycdlibexception.PyCdlibException:
        return {}
    for child in children:
        if child.is_dot() or child.is_dotdot() or child.is_dir():
            continue
        name = child.file_identifier().decode("utf-16-be").split(";")[0]
        if name.lower().endswith(".pdb"):
            continue
        content = io.BytesIO()
        iso.get_file_from_iso_fp(content, joliet_path=f"{folder}/{name}")
        files[f"{target}/{name}"] = content.getvalue()
    return files
