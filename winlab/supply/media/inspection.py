"""Inspects a Windows installation medium in place: in a second, whatever its size, and without mounting it.

All problems are reported at once, each with a cure; the report also lists what is fine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

from winlab import files
from winlab.design.catalog import recipes, versions
from winlab.errors import UsageError
from winlab.events import Progress
from winlab.supply import disk_format
from winlab.supply.media import windows_iso
from winlab.supply.media.wim import WimImage, read_images
from winlab.supply.media.windows_iso import SECTOR, UEFI, BootEntry

BOOT = "/efi/microsoft/boot"
# What asks for a key press: the two programs for UEFI, and what BIOS reads (boot/bootfix.bin); then what does not ask
PROMPTS = (f"{BOOT}/efisys.bin", f"{BOOT}/cdboot.efi", "/boot/bootfix.bin")
NO_PROMPTS = (f"{BOOT}/efisys_noprompt.bin", f"{BOOT}/cdboot_noprompt.efi")
MOST_FILES = 200_000  # Microsoft's media have a thousand
DEEPEST = 64  # folders within each other
CHANNEL, KEY = "/sources/ei.cfg", "/sources/pid.txt"
PRODUCT_KEY = re.compile(r"value\s*=\s*([0-9a-z]{5}(?:-[0-9a-z]{5}){4})")
AGAIN = "Download the ISO again and compare its SHA-256."


@dataclass(frozen=True)
class Finding:
    """A reason why winlab can't install from the medium, and the cure."""

    what: str
    cure: str


@dataclass(frozen=True)
class MediumFile:
    """A file in the UDF tree: where it begins in the medium (None if it is empty), and its size in bytes."""

    path: str
    begin: int | None
    size: int


@dataclass
class Inspection:
    """What is known of a medium."""

    path: Path
    size: int
    label: str = ""
    sha256: str | None = None
    known: str | None = None  # which published evaluation medium it is
    files: list[MediumFile] = field(default_factory=list)
    boot: list[BootEntry] = field(default_factory=list)
    prompts: bool | None = (
        None  # whether UEFI asks for a key press before it boots the medium; None: UEFI can't boot it
    )
    channel: str | None = None  # of ei.cfg: eval, volume, retail ...
    product_key: str | None = field(default=None, repr=False)  # of PID.txt; in no report
    images: list[WimImage] = field(default_factory=list)
    setup: list[WimImage] = field(default_factory=list)  # of boot.wim
    virtio: list[str] = field(default_factory=list)  # drivers that its Windows PE has, if that was asked for
    problems: list[Finding] = field(default_factory=list)

    @property
    def releases(self) -> list[str]:
        """The releases of Windows Server that its images are, by their names or their builds: ``2022``."""
        known = dict.fromkeys(release for name in recipes.names() if (release := recipes.get(name).windows))
        builds = {rules.build: release for release, rules in versions.load().windows.items()}

        def release_of(image: WimImage) -> str | None:
            named = next((one for one in known if f"Server {one}" in image.name), None)
            return named or (builds.get(image.build) if image.is_server and image.build else None)

        found = set(map(release_of, self.images))
        return [one for one in known if one in found]

    @property
    def release(self) -> str | None:
        """All of :attr:`releases` in one text; None if there are none."""
        return ", ".join(self.releases) or None

    @property
    def evaluation(self) -> bool | None:
        """Whether its images are for evaluation (True) or need a product key (False); None if it has no images."""
        return self.images[0].is_evaluation if self.images else None

    @property
    def starts_silently(self) -> bool:
        """Whether it has a UEFI program that asks for no key, which winlab's overlay takes."""
        return self.has(NO_PROMPTS[0])

    @property
    def boot_programs(self) -> dict[str, bool]:
        """Whether it has each of the programs that ask for a key or don't, by their paths."""
        return {path: self.has(path) for path in (*PROMPTS, *NO_PROMPTS)}

    def image(self, wanted: str) -> WimImage | None:
        """The image with this name or, if that is a number, with this index; None if there is none."""
        if wanted.isdecimal():
            return next((image for image in self.images if image.index == int(wanted)), None)
        return next((image for image in self.images if image.name == wanted), None)

    def require_usable(self) -> None:
        """Check that winlab can install from it.

        :raises UsageError: it can't; the message names all problems.
        """
        if self.problems:
            raise UsageError(
                f"winlab can't install Windows from '{self.path}'.",
                why="\n".join(problem.what for problem in self.problems),
                cure="\n".join(dict.fromkeys(problem.cure for problem in self.problems)),
            )

    def facts(self, *, tree: bool = False) -> dict[str, Any]:
        """All of it in plain values, as ``winlab iso inspect -o json`` prints it.

        :param tree: with the list of its files.
        """
        facts: dict[str, Any] = {
            "path": str(self.path),
            "size": self.size,
            "label": self.label,
            "sha256": self.sha256,
            "known": self.known,
            "release": self.release,
            "evaluation": self.evaluation,
            "channel": self.channel,
            "files": len(self.files),
            "boot": [asdict(entry) for entry in self.boot],
            "asks_for_a_key": self.prompts,
            "boot_programs": self.boot_programs,
            "images": [_image(image) for image in self.images],
            "setup": [_image(image) for image in self.setup],
            "virtio": self.virtio,
            "usable": not self.problems,
            "problems": [asdict(problem) for problem in self.problems],
        }
        if tree:
            facts["tree"] = [{"path": one.path, "size": one.size} for one in self.files]
        return facts

    def has(self, path: str) -> bool:
        """Whether there is such a file; case does not matter, as on Windows."""
        return any(file.path.lower() == path for file in self.files)


def _image(image: WimImage) -> dict[str, Any]:
    return {**asdict(image), "evaluation": image.is_evaluation, "server": image.is_server}


def inspect(path: Path, progress: Progress | None = None) -> Inspection:
    """Read a medium.

    :param progress: if given, the SHA-256 is computed, too, which takes as long as reading the file.
    :raises UsageError: it can't be read at all, or is not an ISO image; the message says what it is instead.
    """
    with windows_iso.opened(path) as iso:
        disk_format.check(path, "iso", str(path))
        report = Inspection(path, path.stat().st_size, iso.pvd.volume_identifier.decode("ascii", "replace").strip())
        if not iso.has_udf():
            report.problems.append(
                Finding(
                    "It has no UDF file system, in which Microsoft's media have all their files.",
                    "Use a Windows Server ISO as Microsoft distributes it; one that was rebuilt with other tools "
                    "is often missing files over 4 GiB.",
                )
            )
        else:
            report.files = list(itertools.islice(_walk(iso, "/"), MOST_FILES))
            _read(iso, report)
    _boot(report)
    _contents(report)
    _ends(report)
    if progress is not None:
        report.sha256 = files.sha256(path, progress)
        report.known = next(
            (name for name, evaluation in recipes.evaluations() if evaluation.sha256 == report.sha256), None
        )
    return report


def _walk(iso: pycdlib.PyCdlib, folder: str, depth: int = 0) -> Iterator[MediumFile]:
    if depth > DEEPEST:
        raise ValueError("its folders lead to each other")
    for child in iso.list_children(udf_path=folder):
        if child is None:  # the folder above
            continue
        name = child.file_identifier().decode("utf-8", "replace")
        path = f"{folder.rstrip('/')}/{name}"
        if child.is_dir():
            yield from _walk(iso, path, depth + 1)
        else:
            begin = child.inode.extent_location() * SECTOR if child.inode is not None else None
            yield MediumFile(path, begin, child.get_data_length())


def _read(iso: pycdlib.PyCdlib, report: Inspection) -> None:
    """The WIMs, ei.cfg and PID.txt."""
    for what, images in (("/sources/install.wim", report.images), ("/sources/boot.wim", report.setup)):
        real = next((entry.path for entry in report.files if entry.path.lower() == what), None)
        if real is None:
            continue
        try:
            with iso.open_file_from_iso(udf_path=real) as file:
                found = read_images(file, f"'{what}'")
            images += found
            if not found:
                report.problems.append(Finding(f"'{what}' has no images: it was not finished.", AGAIN))
        except UsageError as error:
            report.problems.append(Finding(" ".join(filter(None, (error.what, error.why))), error.cure or AGAIN))
        except (PyCdlibException, OSError) as error:
            report.problems.append(Finding(f"'{what}' can't be read: {error}", AGAIN))
    settings: dict[str, list[str]] = {}
    for entry in report.files:
        if entry.path.lower() in (CHANNEL, KEY):
            with iso.open_file_from_iso(udf_path=entry.path) as file:
                settings |= _settings(file.read(4096))
    report.channel = next(iter(settings.get("[channel]", [])), None)
    keys = filter(None, map(PRODUCT_KEY.fullmatch, settings.get("[pid]", [])))
    report.product_key = next((found[1].upper() for found in keys), None)


def _settings(content: bytes) -> dict[str, list[str]]:
    """The lines of an INI file by section, in small letters, without comments and blank lines, as Windows reads it."""
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    lines = content.decode("utf-16" if wide else "utf-8-sig", "replace").splitlines()
    found: dict[str, list[str]] = {}
    section = ""
    for line in filter(None, (line.partition(";")[0].strip().lower() for line in lines)):
        if line.startswith("["):
            section = line
        else:
            found.setdefault(section, []).append(line)
    return found


def _boot(report: Inspection) -> None:
    report.boot = windows_iso.boot_entries(report.path)
    if not any(entry.platform == UEFI for entry in report.boot):
        report.problems.append(Finding("UEFI can't boot it: its boot catalog has no entry for UEFI.", AGAIN))
        return
    if report.files:
        report.prompts = windows_iso.asks_for_a_key(report.path)


def _contents(report: Inspection) -> None:
    """The images, or what the medium has instead of them."""
    other = {file.path.lower() for file in report.files}
    take = "Use an ISO of Windows Server as Microsoft distributes it."
    if not report.files or report.images:
        pass
    elif "/sources/install.esd" in other:
        report.problems.append(
            Finding(
                "Its images are in install.esd, a solidly compressed file, as on upgrade and client media.",
                f"{take} Or convert it: 'wimlib-imagex export install.esd all install.wim --compress=LZX'.",
            )
        )
    elif any(path.startswith("/sources/install") and path.endswith(".swm") for path in other):
        report.problems.append(
            Finding(
                "Its install.wim was split into .swm parts, as for a FAT32 USB stick.",
                f"{take} Or join them: 'wimlib-imagex join install.wim install*.swm'.",
            )
        )
    elif "/sources/install.wim" not in other:
        report.problems.append(Finding("It has no sources/install.wim, so Windows can't be installed from it.", take))
    if report.images and not any(image.is_server for image in report.images):
        names = ", ".join(image.name for image in report.images[:3])
        report.problems.append(Finding(f"It installs a client, not Windows Server: {names}.", take))
    elif report.images and report.release is None:
        names = ", ".join(image.name for image in report.images[:3])
        report.problems.append(
            Finding(f"winlab does not know this release: {names}.", "Known are Windows Server 2019, 2022 and 2025.")
        )
    if wrong := {image.architecture for image in report.images} - {"x64", ""}:
        report.problems.append(Finding(f"It is for {', '.join(sorted(wrong))} processors, not for x64.", take))
    if report.images and "/sources/boot.wim" not in other:
        report.problems.append(Finding("It has no sources/boot.wim, which starts Setup.", AGAIN))


def _ends(report: Inspection) -> None:
    """Whether the medium has all files completely: a truncated download is the most common damage.

    (If the descriptors at the medium's end are lost, it can't be opened, and :func:`windows_iso.opened` says so.)
    """
    ends = [(file.begin + file.size, file.path) for file in report.files if file.begin is not None and file.size]
    if ends and (last := max(ends))[0] > report.size:
        lost = sum(end > report.size for end, _ in ends)
        report.problems.insert(
            0,
            Finding(
                f"It is truncated: it has {report.size} of at least {last[0]} bytes. "
                f"{lost} of {len(ends)} files are incomplete, '{last[1]}' among them.",
                "Download it again, or resume the download.",
            ),
        )
