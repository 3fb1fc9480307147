"""QEMU's migration stream: the guest's memory is split from the rest, and merged with it again.

The stream begins with a magic number and a configuration section. The section "ram" follows in parts: its start lists
the blocks of memory, then come pages, until its end. The devices follow. :class:`Split` takes the pages of the block
`pc.ram` out. QEMU leaves a page that does not come as it is: zero, or what the file has that it uses as memory.
:func:`merge` puts the pages back as one more part, before all others.

A page that comes again, or after one with a higher offset, stays in the stream: QEMU loads it over the one that came
before. So the memory is written once, in ascending order, even if a device changed a page while QEMU saved it.

Checked with streams of QEMU 7.2 and 10.0, and in the source of QEMU:

- 8.2: `ram_save_setup`, `ram_save_iterate`, `ram_save_complete`, `parse_ramblocks` and `ram_load_precopy` in
  migration/ram.c, `save_section_header` and `save_section_footer` in migration/savevm.c.
- 8.1 writes a flag of multifd (0x200) into each stream, which 8.2 does not. It is refused, because with multifd the
  pages are not in this stream.
- 8.1 and later can write whole sections before the memory (`early_setup`, for virtio-mem). They are refused.
- 9.0: the capability mapped-ram adds headers to the list of blocks. As `x-ignore-shared`, it is named in a subsection
  of the configuration (`should_validate_capability` in migration/savevm.c), which is refused.
- 10.0: the command `MIG_CMD_SWITCHOVER_START` stands between the parts of the memory, with machine types from 10.0 on
  (`send-switchover-start` in hw/core/machine.c). It stays where it is. Other commands are refused.
- 10.0 has the flags in migration/ram.h, and none is new.

Without capabilities, the list of blocks has names and lengths only: page sizes come with postcopy, addresses with
`x-ignore-shared`. Subsections of the configuration are otherwise for page sizes that x86 does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from winlab.adapters.vm.chunks import AT_ONCE, Chunks
from winlab.errors import WinlabError

MAGIC = b"QEVM\0\0\0\3"  # with the version
START, PART, END, CONFIGURATION, FOOTER = b"\1", b"\2", b"\3", b"\7", b"\x7e"
SWITCHOVER = b"\x08\0\x0b\0\0"  # the whole command
VERSION = struct.pack(">II", 0, 4)  # of the section "ram", after its instance
ZERO, MEM_SIZE, DATA, EOS, CONTINUE = 0x02, 0x04, 0x08, 0x10, 0x20  # flags: the low bits of a page's offset

RAM = b"pc.ram"
PAGE = 4096
NUMBER = struct.Struct(">Q")
RECORDS = {ZERO: struct.Struct(">Qx"), DATA: struct.Struct(f">Q{PAGE}x")}  # of a page of the same block as the last one
NOTHING = bytes(PAGE)
LARGEST = 1 << 40  # bytes of a guest's memory
BLOCKS = 1000  # at most


class StreamError(WinlabError):
    """The stream has something that winlab does not know, so it can only be used as it is."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "This QEMU's migration stream can't be split into memory and state, or merged from them.",
            why=why,
            cure="The image can only be used whole. If you imported the snapshot, import it again.",
        )


@dataclass(frozen=True)
class _Opening:
    """The stream up to the first part with pages."""

    raw: bytes
    section: bytes  # the number of the section "ram"
    blocks: dict[bytes, int]  # sizes


class Split:
    """Takes the guest's memory out of a stream.

    :raises WinlabError: the stream does not begin as expected (:class:`StreamError`), or ends too early.
    """

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = Chunks(stream)
        self._opening = _opening(self._stream)
        self._block = b""  # of the page that came last
        self._kept = b""  # the same, of the pages that stay in the stream
        self._next = 0  # the offset after the last page that was taken out

    @property
    def size(self) -> int:
        """How many bytes of memory the guest has."""
        return self._opening.blocks[RAM]

    def state(self, data: Callable[[int, bytes], object]) -> Iterator[bytes]:
        """The stream without the guest's memory. It can be read once.

        :param data: receives the memory while the stream is read: offset and whole pages, about 1 MiB at once. Offsets
            ascend; what is left out is zero.
        :raises WinlabError: the stream ends too early, or has something unexpected (:class:`StreamError`).
        """
        ready = bytearray()
        for piece in self._pieces(data):
            ready += piece
            if len(ready) >= AT_ONCE:
                yield bytes(ready)
                ready.clear()
        yield bytes(ready)

    def _pieces(self, data: Callable[[int, bytes], object]) -> Iterator[bytes]:
        """The same in pieces of any length."""
        stream, section = self._stream, self._opening.section
        yield self._opening.raw
        head = b""
        while head != END + section:
            yield (head := stream.take(len(SWITCHOVER)))
            if head == SWITCHOVER:
                continue
            if head not in (PART + section, END + section):
                raise StreamError(f"Between the parts of the memory is another section: {head.hex()}.")
            while (kept := self._take_pages(data)) is not None:
                yield kept
            yield NUMBER.pack(EOS) + _footer(stream, section)
        yield from stream.rest()

    def _take_pages(self, data: Callable[[int, bytes], object]) -> bytes | None:
        """Take one page out, and those that follow it immediately; returns what stays, None at the end of the part."""
        stream = self._stream
        (header,) = NUMBER.unpack(stream.take(NUMBER.size))
        if header == EOS:
            return None
        flags = header % PAGE
        offset, kind = header - flags, flags & ~CONTINUE
        if kind not in RECORDS:
            raise StreamError(f"A page has the flags {flags:#x}.")
        if flags == kind:
            self._block = stream.take(stream.take(1)[0])
        if offset >= self._opening.blocks.get(self._block, 0):
            raise StreamError(f"There is no page {offset:#x} in the block {self._block!r}.")
        body = stream.take(RECORDS[kind].size - NUMBER.size)
        if kind == ZERO and body != b"\0":
            raise StreamError(f"A page is filled with {body.hex()}.")
        if self._block != RAM or offset < self._next:
            if self._kept == self._block:
                return NUMBER.pack(offset | kind | CONTINUE) + body
            self._kept = self._block
            return NUMBER.pack(offset | kind) + bytes([len(self._block)]) + self._block + body
        begin, step = stream.at, RECORDS[kind].size
        self._next = self._skip_run(kind, offset + PAGE)
        if kind == DATA:
            received = memoryview(stream.buffer)
            pages = [received[at + NUMBER.size : at + step] for at in range(begin, stream.at, step)]
            data(offset, b"".join([body, *pages]))
        elif stream.buffer[begin + NUMBER.size : stream.at : step].strip(b"\0"):
            raise StreamError("A page is filled with something other than zeros.")
        return b""

    def _skip_run(self, kind: int, offset: int) -> int:
        """Skip the pages in the buffer that are at *offset* and immediately after it; returns the offset after them."""
        stream, record = self._stream, RECORDS[kind]
        most = min((len(stream.buffer) - stream.at) // record.size, (self.size - offset) // PAGE)
        received = memoryview(stream.buffer)[stream.at : stream.at + most * record.size]
        header = first = offset | kind | CONTINUE
        for (found,) in record.iter_unpack(received):
            if found != header:
                break
            header += PAGE
        stream.at += (header - first) // PAGE * record.size
        return offset + header - first


def merge(state: Iterable[bytes], ram: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """The stream with the guest's memory in it again.

    :param state: what :meth:`Split.state` gave.
    :param ram: the memory: offsets and contents of any length, in ascending order. What is left out is zero.
    :raises WinlabError: the state does not begin as expected, or the memory does not fit (:class:`StreamError`).
    """
    stream = Chunks(state)
    opening = _opening(stream)
    yield opening.raw + PART + opening.section
    flags, name = DATA, bytes([len(RAM)]) + RAM
    for offset, content in _whole_pages(ram, opening.blocks[RAM]):
        parts: list[bytes] = []
        for at in range(0, len(content), PAGE):
            page = content[at : at + PAGE]
            if page != NOTHING:
                parts += NUMBER.pack(offset + at | flags), name, page
                flags, name = DATA | CONTINUE, b""
        if parts:
            yield b"".join(parts)
    yield NUMBER.pack(EOS) + FOOTER + opening.section
    yield from stream.rest()


def _opening(stream: Chunks) -> _Opening:
    """Read a stream up to the first part with pages."""
    raw = bytearray()

    def take(length: int) -> bytes:
        piece = stream.take(length)
        raw.extend(piece)
        return piece

    if (magic := take(len(MAGIC))) != MAGIC:
        raise StreamError(f"It begins with {magic!r}.")
    if (kind := take(1)) == CONFIGURATION:
        length = int.from_bytes(take(4), "big")
        if length > 255:
            raise StreamError(f"The name of the machine's type has {length} characters.")
        take(length)
        kind = take(1)
    section = take(4)
    if kind != START or (name := take(take(1)[0])) != b"ram":
        what = f"a section of type {kind.hex()}" if kind != START else f"the section {name!r}"
        raise StreamError(f"It has {what} before the memory.")
    if (version := take(8)) != VERSION:
        raise StreamError(f"The memory's section has the version {version.hex()}.")
    (header,) = NUMBER.unpack(take(8))
    if header % PAGE != MEM_SIZE:
        raise StreamError(f"The list of memory blocks has the flags {header % PAGE:#x}.")
    blocks: dict[bytes, int] = {}
    left = header - MEM_SIZE
    while left:
        name = take(take(1)[0])
        (size,) = NUMBER.unpack(take(8))
        if not name or name in blocks or not 0 < size <= left or size % PAGE or len(blocks) == BLOCKS:
            raise StreamError(f"The list of memory blocks has {name!r} with {size} bytes, where {left} are left.")
        blocks[name] = size
        left -= size
    if not 0 < blocks.get(RAM, 0) <= LARGEST:
        raise StreamError(f"The block {RAM.decode()} is missing or too large: there are {len(blocks)} blocks.")
    (end,) = NUMBER.unpack(take(8))
    if end != EOS:
        raise StreamError(f"The list of memory blocks is followed by the flags {end % PAGE:#x}.")
    raw += _footer(stream, section)
    return _Opening(bytes(raw), section, blocks)


def _footer(stream: Chunks, section: bytes) -> bytes:
    """The footer of a part of the memory."""
    found, footer = stream.take(5), FOOTER + section
    if found != footer:
        raise StreamError(f"A part of the memory ends with {found.hex()}.")
    return footer


def _whole_pages(ram: Iterable[tuple[int, bytes]], size: int) -> Iterator[tuple[int, bytes]]:
    """The same memory in whole pages: what is missing in them is zero."""
    begin, ready = 0, b""  # less than a page, from its begin on
    for offset, content in ram:
        end = begin + len(ready)
        if offset < end or offset + len(content) > size:
            raise StreamError(f"The memory from {offset:#x} on, {len(content)} bytes, is not as expected.")
        if offset - begin < PAGE:
            ready += bytes(offset - end) + content
        else:
            if ready:
                yield begin, ready.ljust(PAGE, b"\0")
            begin, ready = offset - offset % PAGE, bytes(offset % PAGE) + content
        whole = len(ready) - len(ready) % PAGE
        if whole:
            yield begin, ready[:whole]
            begin, ready = begin + whole, ready[whole:]
    if ready:
        yield begin, ready.ljust(PAGE, b"\0")
