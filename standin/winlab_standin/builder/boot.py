"""What the firmware starts: the images that Windows media call efisys.bin, etfsboot.com, bootmgr and bootx64.efi.

GRUB does the work. Its programs are made from the host's ``grub-efi-amd64-bin`` and ``grub-pc-bin``; the program that
prints "Press any key to boot from CD or DVD" is compiled from boot/prompt.c with gcc and gnu-efi.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from winlab.errors import HostError
from winlab.run import run

FLOPPY = 1_474_560  # bytes of Microsoft's efisys.bin
MBR_CODE = 440  # bytes of a master boot record that are code
ETFSBOOT = 4096  # bytes of Microsoft's etfsboot.com: the 8 sectors that its boot catalog entry loads
PACKAGES = "Install the packages gcc, gnu-efi, grub-efi-amd64-bin, grub-pc-bin and mtools."
# QEMU 7.2 without KVM faults at cmpxchg16b with two CPUs, and at a user-mode IRETQ with SMAP.
# With the same addresses each time, an emulator translates a program once, not at every start.
# With erms, Linux makes an emulator copy byte by byte.
# "panic": Windows, too, restarts by itself after a blue screen.
KERNEL = (
    "console=ttyS0,115200 console=tty0 quiet loglevel=3 panic=5 clearcpuid=cx16,smap,erms mitigations=off audit=0 "
    "tsc=reliable no5lvl norandmaps nokaslr"
)
_COMMON = "linux normal echo test search search_fs_file configfile minicmd"
_EFI_MODULES = f"{_COMMON} udf fat part_gpt part_msdos efi_gop efi_uga all_video gzio".split()
_BIOS_MODULES = f"{_COMMON} udf biosdisk vbe vga gzio".split()
_BIOS_DISK_MODULES = ["linux", "normal", "echo", "test", "biosdisk", "part_msdos", "ntfs", "gzio"]
_GRUB = Path("/usr/lib/grub/i386-pc")
_SOURCE = Path(__file__).parent.parent / "boot"


@dataclass(frozen=True)
class Programs:
    """The boot programs, by purpose."""

    media: bytes  # EFI: starts Setup from the media
    disk: bytes  # EFI: starts the installed system from its EFI partition
    prompt: bytes  # EFI: asks for a key, then starts "media" from its own volume
    bios: bytes  # a GRUB image for El Torito


def media_config(offset: int) -> str:
    """GRUB's commands for the media. *offset*: where the root file system begins in install.wim, bytes."""
    return (
        "search --no-floppy --set=root --file /boot/standin\n"
        "echo 'Loading files...'\n"
        f"linux /boot/vmlinuz {KERNEL} winlab.mode=setup winlab.offset={offset}\n"
        "initrd /boot/initrd.img\n"
        "boot\n"
    )


def disk_config(folder: str) -> str:
    """GRUB's commands for the installed disk: everything is in *folder* on the system partition."""
    return f"linux {folder}/vmlinuz {KERNEL} winlab.mode=disk\ninitrd {folder}/initrd.img\nboot\n"


def _grub(target: str, modules: list[str], config: str, work: Path) -> bytes:
    script, output = work / f"{target}.cfg", work / f"{target}.img"
    script.write_text(config, encoding="utf-8")
    run(
        ["grub-mkimage", "-O", target, "-p", "/boot/grub", "-c", script, "-o", output, *modules],
        cure=PACKAGES,
    )
    return output.read_bytes()


def _gnu_efi() -> Path:
    """The folder of gnu-efi's linker script, start code and libraries."""
    for folder in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/lib/gnuefi"), Path("/usr/lib/gnu-efi")):
        if (folder / "crt0-efi-x86_64.o").is_file():
            return folder
    raise HostError("The files of gnu-efi are not there.", why="crt0-efi-x86_64.o was not found.", cure=PACKAGES)


def prompt(work: Path) -> bytes:
    """Compile boot/prompt.c into an EFI program."""
    folder = _gnu_efi()
    thing, shared, program = work / "prompt.o", work / "prompt.so", work / "prompt.efi"
    flags = "-c -O2 -fpic -ffreestanding -fno-stack-protector -fno-stack-check -fshort-wchar"
    machine = "-mno-red-zone -maccumulate-outgoing-args"
    includes = ["-I/usr/include/efi", "-I/usr/include/efi/x86_64"]
    run(["gcc", *flags.split(), *machine.split(), *includes, _SOURCE / "prompt.c", "-o", thing], cure=PACKAGES)
    options = ["-nostdlib", "-znocombreloc", "-shared", "-Bsymbolic", "-T", str(folder / "elf_x86_64_efi.lds")]
    objects = [folder / "crt0-efi-x86_64.o", thing]
    run(["ld", *options, "-L", folder, *objects, "-o", shared, "-lgnuefi", "-lefi"], cure=PACKAGES)
    sections = [".text", ".sdata", ".data", ".dynamic", ".dynsym", ".rel", ".rela", ".rel.*", ".rela.*", ".reloc"]
    keep = [word for section in sections for word in ("-j", section)]
    run(["objcopy", *keep, "--target=efi-app-x86_64", shared, program], cure=PACKAGES)
    return program.read_bytes()


def programs(offset: int, work: Path) -> Programs:
    """Make all boot programs. *offset*: see :func:`media_config`."""
    return Programs(
        media=_grub("x86_64-efi", _EFI_MODULES, media_config(offset), work),
        disk=disk_program(work),
        prompt=prompt(work),
        bios=_grub("i386-pc-eltorito", _BIOS_MODULES, media_config(offset), work),
    )


def disk_program(work: Path) -> bytes:
    """The EFI program of the installed disk."""
    return _grub("x86_64-efi", _EFI_MODULES, disk_config("/EFI/Microsoft/Boot"), work)


def bios_disk_program(work: Path) -> bytes:
    """What follows the master boot record of a disk that a BIOS starts; its first sector loads the rest."""
    return _grub("i386-pc", _BIOS_DISK_MODULES, f"set root=(hd0,msdos1)\n{disk_config('/Boot')}", work)


def master_boot_record() -> bytes:
    """GRUB's boot sector: loads the next sector. Its last 72 bytes belong to the disk."""
    path = _GRUB / "boot.img"
    if not path.is_file():
        raise HostError("The files of GRUB for a BIOS are not there.", why=f"{path} was not found.", cure=PACKAGES)
    return path.read_bytes()[:MBR_CODE]


def floppy(files: dict[str, bytes], work: Path) -> bytes:
    """A FAT12 image of 1.44 MB with *files* (names in capitals, with folders), as efisys.bin is one."""
    image = work / "efisys.img"
    image.write_bytes(b"\0" * FLOPPY)
    run(["mformat", "-i", image, "-f", "1440", "-v", "EFISECTOR", "::"], cure=PACKAGES)
    folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    if folders:
        run(["mmd", "-i", image, *[f"::/{folder}" for folder in folders]], cure=PACKAGES)
    for name, content in files.items():
        source = work / "efisys.file"
        source.write_bytes(content)
        run(["mcopy", "-i", image, source, f"::/{name}"], cure=PACKAGES)
    return image.read_bytes()


def efisys(made: Programs, work: Path) -> tuple[bytes, bytes]:
    """The images efisys.bin (asks for a key) and efisys_noprompt.bin (starts at once)."""
    asking = {"EFI/BOOT/BOOTX64.EFI": made.prompt, "EFI/BOOT/GRUBX64.EFI": made.media}
    return floppy(asking, work), floppy({"EFI/BOOT/BOOTX64.EFI": made.media}, work)


def etfsboot(bios: bytes, extent: int) -> bytes:
    """The first 4096 bytes of the BIOS image, with the place of the whole image on the media.

    GRUB's CD sector reads the rest itself. It finds the file's extent (2048-byte block) at byte 12 and its length in
    bytes at byte 16: mkisofs calls this the boot information table. Byte 8 is the block of the volume descriptor.
    """
    head = bytearray(bios[:ETFSBOOT].ljust(ETFSBOOT, b"\0"))
    struct.pack_into("<III", head, 8, 16, extent, len(bios))
    return bytes(head)
