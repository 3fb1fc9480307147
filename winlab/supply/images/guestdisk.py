"""Disk images made without root: no mounts, no loop devices.

Layout of the disk (UEFI only)::

    sector 0        protective MBR
    sectors 1-33    partition table (GPT)
    1 MiB           EFI system partition, FAT32: EFI/BOOT/BOOTX64.EFI is GRUB, which looks for the label "root"
    65 MiB          root, ext4, label "root", up to the end
    last 33 sectors the table's copy
"""

from __future__ import annotations

import os
import shlex
import struct
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path

from winlab.run import run

SECTOR = 512
MIB = 1024 * 1024
ESP_MIB = 64  # FAT32 wants at least 65,525 clusters
ESP_TYPE = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
ROOT_TYPE = uuid.UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709")  # root of x86-64 (Discoverable Partitions Specification)
_ENTRIES = 128
_ENTRY = 128  # bytes
_TABLE_SECTORS = _ENTRIES * _ENTRY // SECTOR

# Named one by one, so that every version of mke2fs makes the same, and GRUB 2.06 can read it.
_EXT4 = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,"
    "huge_file,dir_nlink,extra_isize,metadata_csum"
)
_GRUB_MODULES = ("part_gpt", "ext2", "fat", "search", "search_label", "normal", "linux", "configfile", "test", "echo")
_GRUB_CONFIG = """\
search --no-floppy --label root --set=root
set prefix=($root)/boot/grub
configfile $prefix/grub.cfg
"""


@dataclass(frozen=True)
class Partition:
    """A partition of a GPT disk: its type, its name, and its first and last sector (both its own)."""

    kind: uuid.UUID
    name: str
    first: int
    last: int


def gpt(disk_id: uuid.UUID, sectors: int, partitions: list[Partition]) -> tuple[bytes, bytes]:
    """The head and the tail of a GPT disk of *sectors* sectors of 512 bytes (UEFI Specification 2.10, chapter 5).

    The head is 34 sectors (protective MBR, header, entries), the tail 33 (entries, header).
    """
    entries = b"".join(
        part.kind.bytes_le
        + uuid.uuid5(disk_id, part.name).bytes_le
        + struct.pack("<QQQ", part.first, part.last, 0)
        + part.name.encode("utf-16-le").ljust(72, b"\0")
        for part in partitions
    ).ljust(_ENTRIES * _ENTRY, b"\0")

    def header(own: int, other: int, table: int) -> bytes:
        usable = (2 + _TABLE_SECTORS, sectors - 2 - _TABLE_SECTORS)
        fields = struct.pack(
            "<QQQQ16sQIII", own, other, *usable, disk_id.bytes_le, table, _ENTRIES, _ENTRY, zlib.crc32(entries)
        )
        blank = struct.pack("<8sIIII", b"EFI PART", 0x00010000, 92, 0, 0) + fields
        return (blank[:16] + struct.pack("<I", zlib.crc32(blank)) + blank[20:]).ljust(SECTOR, b"\0")

    mbr = bytes(446) + struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff\xff\xff", 1, min(sectors - 1, 0xFFFFFFFF))
    head = mbr.ljust(510, b"\0") + b"\x55\xaa" + header(1, sectors - 1, 2) + entries
    tail = entries + header(sectors - 1, 1, sectors - 1 - _TABLE_SECTORS)
    return head, tail


def make_root(tar: Path, disk: Path, part: Partition, workdir: Path) -> None:
    """Make partition *part* of *disk* an ext4 file system, labelled "root", of the files in *tar*, with their owners.

    Root unpacks the archive as it is; anyone else does it under ``fakeroot``, which only pretends the owners.
    """
    tree = workdir / "tree"
    tree.mkdir()
    size = (part.last + 1 - part.first) * SECTOR
    # All of the file system is written now: nothing is left to do in a guest's first minutes.
    options = f"lazy_itable_init=0,lazy_journal_init=0,offset={part.first * SECTOR}"
    kind = ["-t", "ext4", "-L", "root", "-m", "1", "-J", "size=32", "-O", _EXT4, "-E", options]
    commands: list[list[str | Path]] = [
        ["tar", "-xf", tar, "-C", tree, "--numeric-owner", "--xattrs", "--xattrs-include=*"],
        ["mke2fs", "-q", "-F", *kind, "-d", tree, disk, f"{size // 1024}K"],
    ]
    if os.geteuid() == 0:
        for command in commands:
            run(command)
    else:
        script = " && ".join(shlex.join(str(word) for word in command) for command in commands)
        run(["fakeroot", "--", "sh", "-c", script])


def make_esp(image: Path, workdir: Path) -> None:
    """Make *image* an EFI system partition that boots the file system labelled "root" by GRUB."""
    config = workdir / "early.cfg"
    config.write_text(_GRUB_CONFIG, encoding="ascii")
    loader = workdir / "BOOTX64.EFI"
    cure = "Install the packages grub-common and grub-efi-amd64-bin."
    target: list[str | Path] = ["-O", "x86_64-efi", "-o", loader, "-c", config, "-p", "/boot/grub"]
    run(["grub-mkimage", *target, *_GRUB_MODULES], cure=cure)
    run(["mformat", "-C", "-F", "-i", image, "-v", "ESP", "-T", str(ESP_MIB * MIB // SECTOR), "::"])
    run(["mmd", "-i", image, "::EFI", "::EFI/BOOT"])
    run(["mcopy", "-i", image, loader, "::EFI/BOOT/BOOTX64.EFI"])


def make_disk(tar: Path, output: Path, gibibytes: int, workdir: Path) -> None:
    """Make *output* a qcow2 disk of *gibibytes* GiB that boots, by UEFI, the system in *tar*.

    :raises HostError: a program is missing; the message names it.
    :raises CommandError: a program failed, as when the disk is full.
    """
    sectors = gibibytes * 1024 * MIB // SECTOR
    esp = Partition(ESP_TYPE, "esp", MIB // SECTOR, (1 + ESP_MIB) * MIB // SECTOR - 1)
    root = Partition(ROOT_TYPE, "root", esp.last + 1, sectors - MIB // SECTOR - 1)
    raw = workdir / "disk.raw"
    head, tail = gpt(uuid.uuid4(), sectors, [esp, root])
    with raw.open("wb") as file:
        file.truncate(sectors * SECTOR)
        file.write(head)
        file.seek(sectors * SECTOR - len(tail))
        file.write(tail)
    make_root(tar, raw, root, workdir)
    image = workdir / "esp.img"
    make_esp(image, workdir)
    with raw.open("r+b") as file, image.open("rb") as source:
        file.seek(esp.first * SECTOR)
        while block := source.read(MIB):
            if block.count(0) == len(block):  # leave holes
                file.seek(len(block), os.SEEK_CUR)
            else:
                file.write(block)
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, output])
