"""install.wim and boot.wim of the stand-in: real WIM files with the images that Windows Server media have."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from winlab.errors import WinlabError
from winlab.run import run
from winlab_standin.builder import virtio
from winlab_standin.guest.releases import LANGUAGES, Release

TOOLS = "Install the package wimtools."


@dataclass(frozen=True)
class Edition:
    """One image of install.wim, as evaluation media describe it."""

    name: str
    display: str
    flags: str
    edition: str
    installation: str


def editions(release: Release) -> tuple[Edition, ...]:
    """The images of install.wim, in their order."""
    return tuple(
        Edition(
            f"Windows Server {release.name} SERVER{kind.upper()}{'CORE' if core else ''}",
            f"Windows Server {release.name} {kind.capitalize()} Evaluation{'' if core else ' (Desktop Experience)'}",
            f"Server{kind.capitalize()}Eval{'Core' if core else ''}",
            f"Server{kind.capitalize()}Eval",
            "Server Core" if core else "Server",
        )
        for kind in ("standard", "datacenter")
        for core in (True, False)
    )


_FOLDERS = (
    "PerfLogs",
    "Program Files/Common Files",
    "Program Files (x86)",
    "ProgramData/ssh",
    "Users/Default",
    "Users/Public",
    "Windows/Panther/UnattendGC",
    "Windows/System32/config",
    "Windows/System32/drivers/etc",
    "Windows/System32/Sysprep",
    "Windows/Setup/Scripts",
    "Windows/Temp",
)


def tree(target: Path, squashfs: Path, kernel: bytes, initrd: bytes, loaders: dict[str, bytes]) -> None:
    """Lay out the folders that an installed Windows has, with *loaders* by their paths, and the stand-in's own files in
    System32\\standin."""
    for folder in _FOLDERS:
        (target / folder).mkdir(parents=True)
    hosts = "# Copyright (c) of nobody: the stand-in's own file.\r\n127.0.0.1 localhost\r\n"
    (target / "Windows/System32/drivers/etc/hosts").write_text(hosts, encoding="ascii", newline="")
    files = {
        **loaders,
        "Windows/System32/standin/vmlinuz": kernel,
        "Windows/System32/standin/initrd.img": initrd,
    }
    for name, content in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    squashfs.rename(target / "Windows/System32/standin/root.sqfs")


def _add(command: str, wim: Path, folder: Path, name: str, description: str, about: dict[str, str]) -> None:
    options = [f"--image-property={key}={value}" for key, value in about.items()]
    how = ["--compress=none"] if command == "capture" else []
    run(["wimlib-imagex", command, folder, wim, name, description, *how, *options], cure=TOOLS)


def properties(release: Release, edition: str, installation: str) -> dict[str, str]:
    """What an image's XML says of the Windows in it. (wimlib counts elements of one name from 1.)"""
    languages = {f"WINDOWS/LANGUAGES/LANGUAGE[{number}]": one for number, one in enumerate(LANGUAGES, 1)}
    languages["WINDOWS/LANGUAGES/DEFAULT"] = LANGUAGES[0]
    build = {"BUILD": str(release.build), "SPBUILD": str(release.revision)}
    version = {"MAJOR": "10", "MINOR": "0", **build, "SPLEVEL": "0"}
    about = {
        "WINDOWS/ARCH": "9",
        "WINDOWS/PRODUCTNAME": "Microsoft® Windows® Operating System",
        "WINDOWS/EDITIONID": edition,
        "WINDOWS/INSTALLATIONTYPE": installation,
        "WINDOWS/PRODUCTTYPE": "ServerNT" if installation.startswith("Server") else "WinNT",
        "WINDOWS/PRODUCTSUITE": "Terminal Server",
        "WINDOWS/SYSTEMROOT": "WINDOWS",
    }
    return {**about, **languages, **{f"WINDOWS/VERSION/{key}": value for key, value in version.items()}}


def install(wim: Path, folder: Path, release: Release) -> None:
    """Capture *folder* as the four editions of a release; the WIM has each file once."""
    for number, edition in enumerate(editions(release)):
        about = {
            "FLAGS": edition.flags,
            "DISPLAYNAME": edition.display,
            "DISPLAYDESCRIPTION": edition.display,
            **properties(release, edition.edition, edition.installation),
        }
        _add("append" if number else "capture", wim, folder, edition.name, edition.name, about)


def add_drivers(tree: Path) -> None:
    """Put virtio's drivers into a Windows before it is captured, as rebuilt media have them."""
    folder = tree / "Windows/System32/drivers"
    folder.mkdir(parents=True, exist_ok=True)
    for _, _, programs in virtio.DRIVERS.values():
        (folder / programs[0]).write_bytes(b"winlab's stand-in: this is no driver\r\n")


def apply(wim: Path, folder: Path) -> None:
    """Write what :func:`install` captured into *folder*."""
    run(["wimlib-imagex", "apply", wim, "1", folder], cure=TOOLS)


def boot(wim: Path, folder: Path, release: Release) -> None:
    """Make boot.wim: image 1 is Windows PE, image 2 is Setup and marked as the one to boot."""
    for number, (name, flags, edition) in enumerate(
        [
            ("Microsoft Windows PE (amd64)", "9", "WindowsPE"),
            ("Microsoft Windows Setup (amd64)", "2", "WindowsPE"),
        ]
    ):
        about = {"FLAGS": flags, **properties(release, edition, "WindowsPE")}
        _add("append" if number else "capture", wim, folder, name, name, about)
    run(["wimlib-imagex", "info", wim, "2", "--boot"], cure=TOOLS)


def offset(wim: Path, content: Path) -> int:
    """Where *content* begins in the uncompressed *wim*, in bytes.

    :raises WinlabError: the WIM does not have it in one piece.
    """
    with (
        wim.open("rb") as whole,
        content.open("rb") as part,
        mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        head = part.read(4096)
        place = view.find(head)
        while place >= 0:
            if _same(view, place, part):
                return place
            place = view.find(head, place + 1)
    raise WinlabError(f"'{content.name}' is not in '{wim.name}' in one piece.", why="The WIM is compressed.")


def _same(view: mmap.mmap, place: int, part: BinaryIO) -> bool:
    part.seek(0)
    while block := part.read(1 << 24):
        if view[place : place + len(block)] != block:
            return False
        place += len(block)
    return True
