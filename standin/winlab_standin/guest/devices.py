"""Disks, CDs and mounts of the running machine."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from winlab_standin.guest import driverstore, wine
from winlab_standin.guest.base import StandinError, run
from winlab_standin.guest.kept import write
from winlab_standin.guest.place import STATE

BLOCK = Path("/sys/class/block")
MEDIA = Path("/media")
LABELS = STATE / "volumes.json"
# linux/cdrom.h
CDROM_MEDIA_CHANGED, CDROM_DRIVE_STATUS, CURRENT_SLOT, DISC_OK = 0x5325, 0x5326, 0x7FFFFFFF, 4


def _size(name: str) -> int:
    return int((BLOCK / name / "size").read_text()) * 512


def disks(drivers: frozenset[str]) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """Fixed disks in their order, with their sizes in bytes; and the devices whose disks are not visible because
    *drivers* are missing."""
    found: list[tuple[Path, int]] = []
    blind: set[str] = set()
    for pattern in ("sd*", "vd*", "nvme*n*"):
        for path in sorted(BLOCK.glob(pattern), key=lambda item: (len(item.name), item.name)):
            if (
                not (path / "partition").exists()
                and (path / "removable").read_text().strip() == "0"
                and _size(path.name)
            ):
                device = driverstore.hardware(path)
                if driverstore.works(device, drivers):
                    found.append((Path("/dev") / path.name, _size(path.name)))
                else:
                    blind.add(device)
    return found, tuple(sorted(blind))


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
    """Mount a device with the first file system that fits; returns whether one did."""
    folder.mkdir(parents=True, exist_ok=True)
    tries = (run(["mount", "-t", kind, "-o", options, device, folder], check=False) for kind in kinds)
    return any(result.returncode == 0 for result in tries)


def letters(installation: Path | None, first: str = "D") -> Iterator[tuple[str, Path, Path]]:
    """Give drive letters to CDs, then to removable disks: (letter, folder, device). *installation* is the CD with the
    media, which is already mounted at /media."""
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


class Drives:
    """The CD drives of the installed system. Each has its letter, from D:, with or without a medium, as in Windows.
    Media are mounted when they are inserted, and unmounted when they are ejected."""

    def __init__(self, media: Path = MEDIA) -> None:
        self.media = media
        self.letters = {
            chr(ord("D") + number): Path("/dev") / path.name for number, path in enumerate(sorted(BLOCK.glob("sr*")))
        }
        self.labels: dict[str, str] = {}

    def refresh(self) -> None:
        """Look at every drive; write the labels into :data:`LABELS` for other processes."""
        before = dict(self.labels)
        for letter, device in self.letters.items():
            there, changed = disc(device)
            if letter in self.labels and (changed or not there):
                del self.labels[letter]
                run(["umount", "-l", self.media / letter], check=False)
                (self.media / letter).rmdir()
                wine.drive(letter, None)
            if there and letter not in self.labels and mount(device, self.media / letter, ("udf", "iso9660")):
                self.labels[letter] = label(device)
                wine.drive(letter, self.media / letter)
        if self.labels != before or not LABELS.exists():
            write(LABELS, json.dumps(self.labels))


def disc(device: Path) -> tuple[bool, bool]:
    """Whether a drive has a medium, and whether it has changed since the last look."""
    try:
        handle = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False, False
    try:
        there = fcntl.ioctl(handle, CDROM_DRIVE_STATUS, CURRENT_SLOT) == DISC_OK
        return there, fcntl.ioctl(handle, CDROM_MEDIA_CHANGED, CURRENT_SLOT) != 0
    except OSError:
        return False, False
    finally:
        os.close(handle)


def label(device: Path) -> str:
    """The name of the volume on a medium: in ISO 9660 32 characters at byte 40 of sector 16 (ECMA-119, 8.4)."""
    with device.open("rb") as file:
        file.seek(16 * 2048 + 40)
        return file.read(32).decode("ascii", "replace").strip()


def labels() -> dict[str, str]:
    """The names of the volumes by their drive letters, as another process last found them."""
    found: dict[str, str] = json.loads(LABELS.read_text()) if LABELS.is_file() else {}
    return found


def wait_for(path: Path, limit: float = 15.0) -> None:
    """Wait until a device exists.

    :raises StandinError: it does not appear within *limit* seconds.
    """
    end = time.monotonic() + limit
    while not path.exists():
        if time.monotonic() > end:
            raise StandinError(f"The device '{path}' did not appear within {limit:.0f} s.")
        time.sleep(0.1)
