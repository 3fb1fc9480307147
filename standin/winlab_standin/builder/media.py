"""The builder of the stand-in media (winlab's recipe windows-rehearsal): Debian packages in, Microsoft's layout out."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from winlab import data
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import UsageError
from winlab.supply.images.apt import debian_mirror
from winlab_standin.builder import boot, initrd, iso, root, shims, virtio, wims

_PACKAGE = Path(__file__).parent.parent
EI_CFG = b"[EditionID]\r\n\r\n[Channel]\r\neval\r\n[VL]\r\n0\r\n"


def _bootstrap() -> Path:
    return data.folder("unattend") / "windows" / "bootstrap.ps1"


def _pe() -> Path:
    """What runs beside Setup in Windows PE."""
    return data.folder("unattend") / "windows" / "pe.cmd"


def _scripts() -> list[Path]:
    """The PowerShell scripts for Windows workers, which the stand-in plays."""
    return sorted((data.folder("unattend") / "windows/worker").glob("*.ps1"))


def _sources() -> list[Path]:
    """The files of this package: what the guest gets (root.payload), and what decides where it stands on the media."""
    return sorted(path for path in _PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def fingerprint(recipe: Recipe) -> str:
    """SHA-256 over all sources that the media are made of: this package, the PowerShell scripts, pyspnego's version.

    No module of winlab is among them, so that a change there makes no new media.
    """
    del recipe
    digest = hashlib.sha256(f"pyspnego {version('pyspnego')}\n".encode())
    for path in _sources():
        digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    for path in (_bootstrap(), _pe(), *_scripts()):
        digest.update(f"{path.name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _known() -> dict[str, bytes]:
    """What the guest must know of this winlab: the digests of the scripts that it plays."""
    pe = _pe().read_bytes().replace(b"\n", b"\r\n")  # as it is on CDs
    known = {
        "bootstrap_sha256": hashlib.sha256(_bootstrap().read_bytes()).hexdigest(),
        "pe_sha256": hashlib.sha256(pe).hexdigest(),
        "scripts": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _scripts()},
    }
    return {"known.json": json.dumps(known, indent=1).encode()}


def build(request: BuildRequest) -> None:
    """Make the ISO.

    :raises UsageError: the recipe has an option that this builder does not know.
    :raises HostError: a program is missing; the message names the packages.
    """
    unknown = set(request.options) - {"packages"}
    if unknown:
        raise UsageError(
            f"The stand-in media have no option '{sorted(unknown)[0]}'.", cure="The only one is 'packages'."
        )
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
    tree, setup = work / "tree", work / "setup"
    wims.tree(tree, made.squashfs, made.kernel, ramdisk, loaders)
    say("capturing install.wim")
    install, starter = work / "install.wim", work / "boot.wim"
    wims.install(install, tree)
    (setup / "Windows/System32").mkdir(parents=True)
    (setup / "Windows/System32/winpeshl.ini").write_bytes(b"[LaunchApp]\r\nAppPath=X:\\setup.exe\r\n")
    wims.boot(starter, setup)
    where = wims.offset(install, tree / "Windows/System32/standin/root.sqfs")
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
            "/boot/vmlinuz": made.kernel,
            "/boot/initrd.img": ramdisk,
            "/efi/boot/bootx64.efi": programs.media,
            iso.UEFI_IMAGE: asking,
            "/efi/microsoft/boot/efisys_noprompt.bin": silent,
            "/efi/microsoft/boot/cdboot.efi": programs.prompt,
            "/efi/microsoft/boot/cdboot_noprompt.efi": programs.media,
            "/sources/ei.cfg": EI_CFG,
            "/sources/boot.wim": starter,
            "/sources/install.wim": install,
            **virtio.files(),
        },
    )
    partial.replace(request.output)
