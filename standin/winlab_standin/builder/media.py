"""The builder of the stand-in media (the recipes windows-rehearsal...): Debian packages in Microsoft's layout.

The system inside is the same for every release of Windows: it is made once, for the recipe :data:`FIRST`, and the media
of other releases take it from there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pycdlib

from winlab import data
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import UsageError
from winlab.supply.images import cache
from winlab.supply.images.apt import debian_mirror
from winlab_standin.builder import boot, engine, initrd, iso, root, shims, virtio, wims
from winlab_standin.guest.releases import DEFAULT, OWN_VIRTIO, RELEASES, SWITCHES, TRAPS, Release

FIRST = "windows-rehearsal"
OPTIONS = ("lenient", "traps", "packages", "engine")
_PACKAGE = Path(__file__).parent.parent
_HOME = Path("Windows/System32/standin")
EI_CFG = b"[EditionID]\r\n\r\n[Channel]\r\neval\r\n[VL]\r\n0\r\n"


def _bootstrap() -> Path:
    return data.folder("unattend") / "windows" / "bootstrap.ps1"


def _pe() -> Path:
    """What runs beside Setup in Windows PE."""
    return data.folder("unattend") / "windows" / "pe.cmd"


def _scripts() -> list[Path]:
    """The PowerShell scripts for Windows workers, which the stand-in simulates."""
    return sorted((data.folder("unattend") / "windows/worker").glob("*.ps1"))


def _sources() -> list[Path]:
    """The files of this package: those that the guest gets (root.payload), and those that lay out the media."""
    return sorted(path for path in _PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def fingerprint(recipe: Recipe) -> str:
    """The SHA-256 of all inputs of the media: the release, this package, winlab's scripts, pyspnego's version.

    winlab's modules are not among them, so that a change there makes no new media.
    """
    digest = hashlib.sha256(f"Windows {release(recipe).name}\npyspnego {version('pyspnego')}\n".encode())
    for path in _sources():
        digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    for path in (_bootstrap(), _pe(), *_scripts()):
        digest.update(f"{path.name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    if place := _engine(recipe.build.options if recipe.build else {}):
        digest.update(engine.digest(place).encode())
    return digest.hexdigest()


def note(recipe: Recipe) -> str:
    """What does the work of winlab's scripts, in a rehearsal with media made now."""
    if _engine(recipe.build.options if recipe.build else {}):
        return "In the rehearsal, winlab's PowerShell scripts are run by the PowerShell engine of WINLAB_POWERSHELL."
    why = f"{engine.VARIABLE} names another PowerShell" if engine.named() else f"{engine.VARIABLE} names none"
    return f"In the rehearsal, winlab's PowerShell scripts are not run but played in Python: {why} (docs/standin.md)."


def _engine(options: dict[str, Any]) -> Path | None:
    """The PowerShell engine that media with these options get: the available one, unless they must have none."""
    return engine.folder() if options.get("engine", True) else None


def _known() -> dict[str, bytes]:
    """What the guest must know of this winlab: the digests of the scripts that it simulates."""
    pe = _pe().read_bytes().replace(b"\n", b"\r\n")  # as it is on CDs
    known = {
        "bootstrap_sha256": hashlib.sha256(_bootstrap().read_bytes()).hexdigest(),
        "pe_sha256": hashlib.sha256(pe).hexdigest(),
        "scripts": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _scripts()},
    }
    return {"known.json": json.dumps(known, indent=1).encode()}


def release(recipe: Recipe) -> Release:
    """The release of Windows that the media of *recipe* simulate."""
    return RELEASES[recipe.windows] if recipe.windows else DEFAULT


@dataclass(frozen=True)
class System:
    """What the media of all releases have in common: the folders of an installed Windows, with the root file system,
    the kernel and the initial RAM disk in them."""

    tree: Path

    @property
    def root(self) -> Path:
        """The root file system."""
        return self.tree / _HOME / "root.sqfs"

    @property
    def kernel(self) -> bytes:
        """Linux."""
        return (self.tree / _HOME / "vmlinuz").read_bytes()

    @property
    def ramdisk(self) -> bytes:
        """The initial RAM disk."""
        return (self.tree / _HOME / "initrd.img").read_bytes()


def build(request: BuildRequest) -> None:
    """Make the ISO.

    :raises UsageError: the recipe has an option that this builder does not know.
    :raises HostError: a program is missing; the message names the packages.
    """
    if unknown := set(request.options) - set(OPTIONS):
        raise UsageError(
            f"The stand-in media have no option '{sorted(unknown)[0]}'.", cure=f"Choose one of: {', '.join(OPTIONS)}."
        )
    if unknown := set(request.options.get("traps", [])) - set(TRAPS):
        raise UsageError(
            f"The stand-in media have no trap '{sorted(unknown)[0]}'.", cure=f"Choose one of: {', '.join(TRAPS)}."
        )
    first = donor(request)
    system = _make(request) if first is None else _take(request, first)
    if place := _engine(request.options):
        request.progress.say("packing the PowerShell engine")
        engine.pack(place, system.tree / _HOME / "engine.sqfs")
    _write(request, system)


def donor(request: BuildRequest) -> Recipe | None:
    """The recipe whose media have the same system as these media need; None if it is made from packages."""
    first = plain(recipes.get(FIRST))
    asked, has = (one.get("packages", []) for one in (request.options, first.build.options if first.build else {}))
    other = request.recipe.name != FIRST or _engine(request.options) is not None
    return first if other and asked == has else None


def plain(recipe: Recipe) -> Recipe:
    """The recipe of the same media, without a PowerShell engine even if one is available."""
    if recipe.build is None or engine.folder() is None:
        return recipe
    options = {**recipe.build.options, "engine": False}
    return recipe.model_copy(update={"build": recipe.build.model_copy(update={"options": options})})


def _take(request: BuildRequest, first: Recipe) -> System:
    """The system, taken from other media, which are made if they are missing."""
    other = cache.obtain(first, request.progress, mirror=request.mirror)
    request.packages.update(cache.manifest(other).get("packages", {}))
    request.progress.say(f"taking the system out of the media '{first.name}'")
    wim, tree = request.workdir / "other.wim", request.workdir / "tree"
    disc = pycdlib.PyCdlib()
    disc.open(str(other.path))
    try:
        disc.get_file_from_iso(str(wim), udf_path="/sources/install.wim")
    finally:
        disc.close()
    wims.apply(wim, tree)
    wim.unlink()
    return System(tree)


def _make(request: BuildRequest) -> System:
    """The system, from Debian's packages."""
    say, work = request.progress.say, request.workdir
    mirror = request.mirror or debian_mirror()
    say("compiling the shims for Wine")
    extra = {**_known(), **{f"shims/{name}": content for name, content in shims.make(work).items()}}
    made = root.build(mirror, list(request.options.get("packages", [])), extra, work, say)
    request.packages.update(made.packages)
    say("making the boot programs")
    ramdisk = initrd.make(made.release, made.modules, made.busybox, (_PACKAGE / "boot/ramdisk.sh").read_bytes())
    loaders = {
        "Windows/Boot/EFI/bootmgfw.efi": boot.disk_program(work),
        "Windows/Boot/PCAT/bootmgr": boot.bios_disk_program(work),
        "Windows/Boot/PCAT/mbr.bin": boot.master_boot_record(),
    }
    wims.tree(work / "tree", made.squashfs, made.kernel, ramdisk, loaders)
    return System(work / "tree")


def _switches(options: dict[str, Any]) -> bytes:
    """The habits and traps that the medium sets."""
    return json.dumps({"lenient": options.get("lenient", False), "traps": options.get("traps", [])}).encode()


def _write(request: BuildRequest, system: System) -> None:
    """The media around the system: WIMs that name the release, boot programs that find the system, the ISO."""
    say, work, of = request.progress.say, request.workdir, release(request.recipe)
    setup = work / "setup"
    if OWN_VIRTIO in request.options.get("traps", []):
        for tree in (setup, system.tree):
            wims.add_drivers(tree)
    say("capturing install.wim")
    install, starter = work / "install.wim", work / "boot.wim"
    wims.install(install, system.tree, of)
    (setup / "Windows/System32").mkdir(parents=True, exist_ok=True)
    (setup / "Windows/System32/winpeshl.ini").write_bytes(b"[LaunchApp]\r\nAppPath=X:\\setup.exe\r\n")
    wims.boot(starter, setup, of)
    where = wims.offset(install, system.root)
    programs = boot.programs(where, work)
    asking, silent = boot.efisys(programs, work)
    say("writing the ISO")
    partial = work / "standin.iso"
    iso.write(
        partial,
        {
            "/autorun.inf": b"[AutoRun.Amd64]\r\nopen=setup.exe\r\n",
            "/bootmgr": programs.bios,
            "/bootmgr.efi": programs.media,
            "/setup.exe": b"This is not Windows: winlab's stand-in for Windows Setup.\r\n",
            iso.BIOS_IMAGE: boot.etfsboot(programs.bios, 0),
            "/boot/bootfix.bin": b"\0" * 1024,
            "/boot/standin": b"winlab\n",
            "/boot/vmlinuz": system.kernel,
            "/boot/initrd.img": system.ramdisk,
            "/efi/boot/bootx64.efi": programs.media,
            iso.UEFI_IMAGE: asking,
            "/efi/microsoft/boot/efisys_noprompt.bin": silent,
            "/efi/microsoft/boot/cdboot.efi": programs.prompt,
            "/efi/microsoft/boot/cdboot_noprompt.efi": programs.media,
            "/sources/ei.cfg": EI_CFG,
            "/sources/boot.wim": starter,
            "/sources/install.wim": install,
            f"/{SWITCHES}": _switches(request.options),
            **virtio.files(of),
            **virtio.tools(),
        },
    )
    partial.replace(request.output)
