"""Whether a file of an artifact is still what was obtained: caches check only its size."""

from __future__ import annotations

import hashlib
import zlib

from winlab import files
from winlab.design.catalog.artifact import Obtained
from winlab.errors import HostError, TransferError


def verify(obtained: Obtained) -> int:
    """Read a whole artifact, and compare it with its digest; its CRC-32, which even an emulated guest computes quickly.

    :raises TransferError: it has changed since it was obtained.
    """
    sha256, crc32 = hashlib.sha256(), 0
    try:
        with obtained.path.open("rb") as file:
            while piece := file.read(files.BLOCK):
                sha256.update(piece)
                crc32 = zlib.crc32(piece, crc32)
    except OSError as error:
        raise HostError(f"{obtained.artifact} can't be read from the cache.", why=str(error), causes=[error]) from error
    if sha256.hexdigest() != obtained.sha256:
        raise TransferError(
            f"{obtained.artifact} in the cache has changed since it was obtained.",
            why=f"Its SHA-256 is {sha256.hexdigest()}, and should be {obtained.sha256}.",
            cure=f"Remove the folder '{obtained.path.parent}', and run the same command again. Is the disk failing?",
            evidence=str(obtained.path),
        )
    return crc32
