"""Small migration streams as QEMU writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

PAGE = 4096
ZERO, MEM_SIZE, DATA, EOS, CONTINUE = 0x02, 0x04, 0x08, 0x10, 0x20
RAM, VIDEO = "pc.ram", "0000:00:01.0/vga.vram"
BLOCKS = {RAM: 16 * PAGE, VIDEO: 4 * PAGE}
PART, END, SECTION = 2, 3, 3
SWITCHOVER = bytes.fromhex("08000b0000")
DEVICES = b"\4\0\0\0\1\5timer" + bytes(40) + b"\x7e\0\0\0\1\0"  # up to the end of the state
MACHINE = struct.pack(">BI", 7, 10) + b"pc-q35-7.2"


def filled(byte: int) -> bytes:
    return bytes([byte]) * PAGE


def named(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def record(flags: int, number: int = 0, name: str = "", content: bytes | None = None) -> bytes:
    """A page, by its number: of another block than the last page if it has a name, and all zeros without content."""
    if content is None:
        flags, content = flags | ZERO, b"\0"
    elif content:
        flags |= DATA
    return struct.pack(">Q", number * PAGE | flags) + (named(name) if name else b"") + content


def pages(name: str, contents: Iterable[tuple[int, bytes | None]]) -> bytes:
    """Pages of a block, by number."""
    made = b""
    for number, content in contents:
        made += record(CONTINUE, number, "", content) if made else record(0, number, name, content)
    return made


def part(content: bytes = b"", kind: int = PART, section: int = SECTION) -> bytes:
    """A part of the section "ram"."""
    return struct.pack(">BI", kind, section) + content + end(section)


def end(section: int = SECTION) -> bytes:
    return struct.pack(">QBI", EOS, 0x7E, section)


def start(name: str = "ram", kind: int = 1, version: int = 4) -> bytes:
    return struct.pack(">BI", kind, SECTION) + named(name) + struct.pack(">II", 0, version)


def sizes(blocks: Mapping[str, int] = BLOCKS, total: int | None = None, flags: int = MEM_SIZE) -> bytes:
    listed = b"".join(named(name) + struct.pack(">Q", size) for name, size in blocks.items())
    return struct.pack(">Q", (sum(blocks.values()) if total is None else total) | flags) + listed


def stream(*parts: bytes, blocks: Mapping[str, int] = BLOCKS) -> bytes:
    """A whole stream with these parts; the last one is the end of the memory."""
    return b"QEVM\0\0\0\3" + MACHINE + start() + sizes(blocks) + end() + b"".join(parts) + DEVICES


def guest() -> bytes:
    """The stream of a guest with all that QEMU 10 writes: several blocks and parts, zeros, pages that come again."""
    return stream(
        part(pages(RAM, [(0, None), (1, None), (2, filled(1)), (3, filled(2)), (4, None), (5, filled(3))])),
        part(pages("", [])),
        part(record(CONTINUE, 6, "", filled(4)) + record(CONTINUE, 9, "", filled(5))),
        part(pages(VIDEO, [(0, filled(6)), (1, None), (2, filled(7))]) + pages(RAM, [(12, filled(8))])),
        SWITCHOVER,
        part(pages(RAM, [(3, filled(9)), (5, None), (13, filled(10))]) + pages(VIDEO, [(2, None)]), END),
    )


MEMORY = {2: 1, 3: 2, 5: 3, 6: 4, 9: 5, 12: 8, 13: 10}  # of that guest: what fills the pages when they come first
