"""Installation media: ISO 9660, UDF, El Torito, WIM; disks that are read from outside."""

from __future__ import annotations

import io
import struct
import tempfile
from functools import cache
from pathlib import Path

import isos
import mutation
from fuzzing import parser

from winlab.events import Quiet
from winlab.supply.media import drivers, inspection, offline, small_iso, wim, windows_iso

from .archives import write

WIM = isos.make_wim([isos.SERVER, "Windows Server 2022 SERVERDATACENTER"], edition="ServerStandardEval")


@cache
def medium() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        return isos.make_server_medium(Path(name) / "m.iso").read_bytes()


@cache
def driver_medium() -> bytes:
    files: dict[str, bytes | Path] = {
        f"{driver}/2k22/amd64/{driver}.{end}": b"x" for driver in drivers.DRIVERS for end in ("inf", "sys")
    }
    with tempfile.TemporaryDirectory() as name:
        small_iso.write(Path(name) / "d.iso", "virtio-win", files)
        return (Path(name) / "d.iso").read_bytes()


def sectors(rng: mutation.random.Random, content: bytes) -> bytes:
    """The structures of an ISO are in few sectors, most of them zeros: change a byte or number that is none."""
    made = bytearray(content)
    used = [at for at in range(0, len(made), 2048) if any(made[at : at + 2048])]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.choice(used)
        places = [at + n for n, byte in enumerate(made[at : at + 2048]) if byte] or [at]
        place = min(rng.choice(places), len(made) - 8)
        form = rng.choice(("<B", "<H", "<I", "<I", ">I", "<Q"))
        size = struct.calcsize(form)
        value = rng.choice((*mutation.EXTREMES, rng.randrange(600), rng.randrange(600))) % (1 << 8 * size)
        struct.pack_into(form, made, place, value)
    return bytes(made)


def swap(rng: mutation.random.Random, content: bytes) -> bytes:
    """One sector takes the place of another: folders that lead to each other."""
    made = bytearray(content)
    used = [at for at in range(0, len(made) - 2047, 2048) if any(made[at : at + 2048])]
    one, other = rng.choice(used), rng.choice(used)
    made[one : one + 2048] = made[other : other + 2048]
    return bytes(made)


def tags(rng: mutation.random.Random, content: bytes) -> bytes:
    """A UDF descriptor's field becomes extreme, and its checksum and CRC right (ECMA-167 3/7.2)."""
    import binascii

    made = bytearray(content)
    places = []
    for at in range(0, len(made) - 2047, 2048):
        if made[at] and sum(made[at : at + 4]) + sum(made[at + 5 : at + 16]) & 0xFF == made[at + 4]:
            places.append(at)
    if not places:
        return sectors(rng, content)
    at = rng.choice(places)
    (length,) = struct.unpack_from("<H", made, at + 10)
    place = at + 16 + rng.randrange(max(1, min(length, 400)))
    form = rng.choice(("<B", "<H", "<I", "<Q"))
    value = rng.choice((*mutation.EXTREMES, rng.randrange(600))) % (1 << 8 * struct.calcsize(form))
    struct.pack_into(form, made, min(place, at + 2040), value)
    struct.pack_into("<H", made, at + 8, binascii.crc_hqx(bytes(made[at + 16 : at + 16 + length]), 0))
    made[at + 4] = (sum(made[at : at + 4]) + sum(made[at + 5 : at + 16])) & 0xFF
    return bytes(made)


ISO = (sectors, sectors, sectors, tags, tags, tags, swap, mutation.cut, mutation.flip, mutation.block)


@parser("windows-iso", lambda: [medium()], ISO, 3)
def windows_medium(content: bytes, folder: Path) -> None:
    path = write(folder, "m.iso", content)
    report = inspection.inspect(path, Quiet())
    windows_iso.no_prompt_patches(path)
    windows_iso.must_have_a_key(path)
    report.require_usable()


@parser("driver-iso", lambda: [driver_medium()], ISO, 2)
def driver_iso(content: bytes, folder: Path) -> None:
    drivers.check(write(folder, "d.iso", content))


def xml(rng: mutation.random.Random, content: bytes) -> bytes:
    """The list of a WIM's images is changed, with its size in the header."""
    text = content[208:].decode("utf-16-le", "replace").encode()
    body = rng.choice((mutation.token, mutation.words, mutation.cut, mutation.block))(rng, text)
    made = bytearray(content[:208].ljust(208, b"\0")) + body.decode("utf-8", "replace").encode(
        "utf-16-le", "surrogatepass"
    )
    struct.pack_into("<QQQ", made, 0x48, len(made) - 208, 208, len(made) - 208)
    return bytes(made)


@parser("wim", lambda: [WIM], (xml, xml, xml, *mutation.BYTES))
def wim_file(content: bytes, folder: Path) -> None:
    with write(folder, "x.wim", content).open("rb") as file:
        for one in wim.read_images(file, "'install.wim'"):
            assert isinstance(one.is_server, bool)


def gpt() -> bytes:
    made = bytearray(64 << 10)
    made[512:520] = offline.GPT
    struct.pack_into("<16s16xQQ", made, 1024, offline.BASIC_DATA, 100, 120)
    made[100 * 512 + 3 : 100 * 512 + 11] = offline.NTFS
    return bytes(made)


def mbr() -> bytes:
    made = bytearray(64 << 10)
    struct.pack_into("<4xB3xII", made, 446, offline.NTFS_TYPE, 100, 20)
    made[100 * 512 + 3 : 100 * 512 + 11] = offline.NTFS
    return bytes(made)


@parser("partitions", lambda: [gpt(), mbr()], (sectors, *mutation.BYTES), 0.5)
def partitions(content: bytes, folder: Path) -> None:
    list(offline.partitions(write(folder, "disk.raw", content)))


__all__ = ["io"]
