"""Disks, CDs and mounts of the running machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from winlab.errors import WinlabError
from winlab.run import run

BLOCK = Path("/sys/class/block")
MEDIA = Path("/media")


def _size(name: str) -> int:
    return int((BLOCK / name / "size").read_text()) * 512


def disks() -> list[tuple[Path, int]]:
    """Fixed disks in their order, with their sizes in bytes."""
    found = []
    for pattern in ("sd*", "vd*", "nvme*n*"):
        for path in sorted(BLOCK.glob(pattern), key=lambda item: (len(item.name), item.name)):
            if (
                not (path / "partition").exists()
                and (path / "removable").read_text().strip() == "0"
                and _size(path.name)
            ):
                found.append((Path("/dev") / path.name, _size(path.name)))
    return found


def removable() -> list[Path]:
    """Removable writable disks and their partitions."""
    names = [path for path in sorted(BLOCK.glob("sd*")) if (path / "removable").exists()]
    chosen = [path for path in names if (path / "removable").read_text().strip() == "1" and _size(path.name)]
    return [Path("/dev") / inner.name for path in chosen for inner in (path, *sorted(path.glob(f"{path.name}[0-9]*")))]


def discs() -> list[Path]:
    """CD drives in their order."""
    return [Path("/dev") / path.name for path in sorted(BLOCK.glob("sr*")) if _size(path.name)]


def partition(disk: Path, number: int) -> Path:
    """The device of a partition."""
    return disk.with_name(f"{disk.name}{'p' if disk.name[-1].isdigit() else ''}{number}")


def mount(device: Path, folder: Path, kinds: tuple[str, ...], options: str = "ro") -> bool:
    """Mount a device with the first file system that fits; whether one did."""
    folder.mkdir(parents=True, exist_ok=True)
    tries = (run(["mount", "-t", kind, "-o", options, device, folder], check=False) for kind in kinds)
    return any(result.returncode == 0 for result in tries)


def letters(installation: Path | None, first: str = "D") -> Iterator[tuple[str, Path, Path]]:
    """Give drive letters to CDs, then to removable disks: (letter, folder, device). *installation* is the CD that the
    media are mounted from already, at /media."""
    letter = ord(first)
    for device in [*discs(), *removable()]:
        folder = MEDIA / chr(letter) if MEDIA.is_dir() and installation is None else Path("/run/drives") / chr(letter)
        if device == installation:
            yield chr(letter), MEDIA, device
        elif mount(device, folder, ("udf", "iso9660", "vfat", "ntfs3")):
            yield chr(letter), folder, device
        else:
            continue
        letter += 1


def wait_for(path: Path, limit: float = 15.0) -> None:
    """Wait until a device is there.

    :raises WinlabError: it does not come within *limit* seconds.
    """
    end = time.monotonic() + limit
    while not path.exists():
        if time.monotonic() > end:
            raise WinlabError(f"The device '{path}' did not appear within {limit:.0f} s.")
        time.sleep(0.1)
