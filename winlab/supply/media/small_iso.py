"""ISO images that winlab makes: the answer ISO and cloud-init's seed of a node, the payload CD of a cluster.

Joliet (Windows) and Rock Ridge (Linux) keep the exact names. The ISO 9660 names are only unique.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pycdlib

from winlab.errors import UsageError
from winlab.supply.media import windows_names


def write(path: Path, label: str, files: Mapping[str, bytes | Path]) -> None:
    """Write an ISO image with *files* (by path: their bytes, or where they are) to *path*, for its owner alone to read.

    :raises UsageError: a name is not allowed on an ISO image; nothing is written.
    """
    for name in files:
        if windows_names.too_long(name):
            raise UsageError(
                f"The file name '{name}' is too long for an answer ISO.",
                cure=f"Give it at most {windows_names.LONGEST} bytes in UTF-8.",
            )
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    iso_paths: dict[str, str] = {"": ""}
    try:
        for name in sorted(files):
            parent = _folders(iso, PurePosixPath(name).parent, iso_paths)
            content = files[name]
            leaf = PurePosixPath(name).name
            place = f"{iso_paths[parent]}/F{len(iso_paths):07d}.;1"
            if isinstance(content, Path):
                iso.add_file(str(content), place, rr_name=leaf, joliet_path=f"/{name}", file_mode=0o100555)
            else:
                source = io.BytesIO(content)
                iso.add_fp(source, len(content), place, rr_name=leaf, joliet_path=f"/{name}", file_mode=0o100400)
            iso_paths[f"{name}\0file"] = ""
        path.touch(mode=0o600)
        path.chmod(0o600)
        with path.open("wb") as file:
            iso.write_fp(file)
    finally:
        iso.close()


def _folders(iso: pycdlib.PyCdlib, folder: PurePosixPath, iso_paths: dict[str, str]) -> str:
    """Make a folder and its parents; the key of the folder in *iso_paths*, which maps to its ISO 9660 path."""
    if str(folder) == ".":
        return ""
    key = str(folder)
    if key not in iso_paths:
        parent = _folders(iso, folder.parent, iso_paths)
        iso_paths[key] = f"{iso_paths[parent]}/D{len(iso_paths):07d}"
        iso.add_directory(iso_paths[key], rr_name=folder.name, joliet_path=f"/{key}", file_mode=0o040500)
    return key
