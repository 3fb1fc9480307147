"""Drivers, as far as they decide which devices Windows has: this reads packages' .inf files, and keeps them in a store.

Windows brings drivers for AHCI, NVMe and Intel's adapters, and none for virtio. No driver runs here: a device whose
driver is not in the store is ignored, as in Windows.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from winlab_standin.guest.base import StandinError

SEARCHED = "$WinPEDriver$"  # at the root of a drive, Setup looks there by itself (Microsoft, KB2686316)
STORE = "Windows/System32/DriverStore/FileRepository"
VIRTIO = "1AF4"  # the vendor whose devices Windows has no drivers for
_ID = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", re.IGNORECASE)
_SECTION = re.compile(r"^\[SourceDisksFiles[^\]]*\]$(.*?)(?=^\[|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Package:
    """A driver package: its .inf, the devices that it is for, and the files that it names but lacks."""

    inf: Path
    devices: frozenset[str]
    missing: tuple[str, ...]


def read(inf: Path) -> Package:
    """The package of an .inf file."""
    data = inf.read_bytes()
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace").replace("\r", "")
    devices = frozenset(f"{vendor}:{device}".upper() for vendor, device in _ID.findall(text))
    beside = {path.name.lower() for path in inf.parent.iterdir()}
    named = [
        line.split("=")[0].strip()
        for section in _SECTION.findall(text)
        for line in section.splitlines()
        if "=" in line and not line.lstrip().startswith(";")
    ]
    return Package(inf, devices, tuple(name for name in named if name.lower() not in beside))


def packages(folder: Path) -> Iterator[Package]:
    """The packages in a folder and the folders below; none if the folder does not exist."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix.lower() == ".inf" and path.is_file():
            yield read(path)


def collect(folders: Iterable[Path]) -> list[Package]:
    """The packages of several folders that can be installed.

    :raises StandinError: the same package is reachable twice; Setup was reported to stop at that.
    """
    found: dict[str, Package] = {}
    for folder in folders:
        for package in packages(folder):
            name = package.inf.name.lower()
            if name in found:
                raise StandinError(
                    "Windows Setup encountered an internal error while loading or searching for an unattended answer "
                    "file. 0x80070103-0x40031",
                    why=f"{package.inf.name} is in two folders of drivers: {found[name].inf} and {package.inf}",
                )
            found[name] = package
    return list(found.values())


def refused(packages_: Iterable[Package], present: Iterable[str], own: frozenset[str] = frozenset()) -> str:
    """Why Windows PE can't install one of the packages, with the code that Setup of 2025 ends with; empty if it can
    install all. *present*: the machine's devices (``VEN:DEV``). *own*: those that this medium has drivers for, in
    addition to those of every Windows."""
    driven = frozenset(device for device in present if works(device, own))
    for package in packages_:
        if package.missing:
            return f"0x80070002: {package.inf.name} lacks {', '.join(package.missing)}"
        if both := sorted(package.devices & driven):
            device = both[0].replace(":", "&DEV_")
            return f"0x80070103: {package.inf.name} is for PCI\\VEN_{device}, which has a driver already"
    return ""


def stage(packages_: Iterable[Package], root: Path) -> None:
    """Copy packages into the store of the system whose C: is *root*. A package that lacks a file is silently left out,
    as Windows leaves out NetKVM without its programs."""
    for package in packages_:
        if package.missing:
            continue
        target = root / STORE / f"{package.inf.stem.lower()}.inf_amd64"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in package.inf.parent.iterdir():
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def known(root: Path) -> frozenset[str]:
    """The devices that the system whose C: is *root* has drivers for."""
    return devices(packages(root / STORE))


def devices(packages_: Iterable[Package]) -> frozenset[str]:
    """All devices of the packages that can be installed."""
    return frozenset(device for package in packages_ if not package.missing for device in package.devices)


def hardware(path: Path) -> str:
    """The PCI device (``VEN:DEV``) that a device in sysfs belongs to; empty if it belongs to none."""
    for folder in (real := path.resolve(), *real.parents):
        subsystem = folder / "subsystem"
        if subsystem.exists() and subsystem.resolve().name == "pci" and (folder / "vendor").exists():
            return ":".join((folder / name).read_text().strip()[2:].upper() for name in ("vendor", "device"))
    return ""


def present(folder: Path = Path("/sys/bus/pci/devices")) -> list[str]:
    """The PCI devices of this machine."""
    return [hardware(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def works(device: str, drivers: frozenset[str]) -> bool:
    """Whether Windows uses a device (``VEN:DEV``), with these drivers in addition to its own."""
    return not device.startswith(f"{VIRTIO}:") or device in drivers
