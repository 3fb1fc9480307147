"""The PowerShell engine that the tests run winlab's scripts with.

It is a real PowerShell whose cmdlets behave as those of Windows PowerShell 5.1, and which takes the doubles of this
folder by ``WINLAB_PS_PRELUDE``. ``WINLAB_POWERSHELL`` names its program; else it is unpacked from the archive that is
beside the checkout, if there is one.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
NAME = "winlab-ps-linux-x64"
MISSING = "there is no PowerShell engine: WINLAB_POWERSHELL names none, and none is beside the checkout"


def locate(folder: Path) -> Path | None:
    """The engine's program; None if there is none.

    :param folder: it is unpacked there, if need be, and found there the next time.
    """
    if named := os.environ.get("WINLAB_POWERSHELL"):
        program = Path(named)
        assert os.access(program, os.X_OK), f"WINLAB_POWERSHELL is '{named}', which is no program"
        return program
    if not SHARED.is_dir():
        return None
    return _unpacked(SHARED / "tools/powershell", folder)


def _unpacked(source: Path, folder: Path) -> Path:
    """The program, unpacked whole or not at all, from an archive with the right digest."""
    listed = dict(reversed(line.split()) for line in (source / "SHA256SUMS").read_text().splitlines() if line)
    digest = listed[f"{NAME}.tar.xz"]
    program = folder / digest[:16] / NAME / "winlab-ps"
    if not program.exists():
        archive = source / f"{NAME}.tar.xz"
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest, f"{archive} is not what SHA256SUMS says"
        partial = folder / f"{digest[:16]}.{os.getpid()}"
        with tarfile.open(archive) as packed:
            packed.extractall(partial, filter="data")
        partial.rename(folder / digest[:16])
    return program
