"""The guest's memory is split from QEMU's stream, and merged with it again."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import migrations as qemu
import pytest
from migrations import CONTINUE, END, PAGE, RAM, VIDEO, filled, pages, part, record

from winlab.adapters.vm.guest_memory import Split, StreamError, merge
from winlab.errors import WinlabError


def chunks(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def split(content: bytes, size: int = 1 << 18) -> tuple[bytes, dict[int, bytes], list[tuple[int, bytes]]]:
    """The state, the pages by number, and the memory as it came."""
    ram: list[tuple[int, bytes]] = []
    splitter = Split(chunks(content, size))
    state = b"".join(splitter.state(lambda offset, content: ram.append((offset, content))))
    assert all(
        offset + len(content) <= after for (offset, content), (after, _) in pairwise([*ram, (splitter.size, b"")])
    )
    found = {
        (offset + at) // PAGE: content[at : at + PAGE] for offset, content in ram for at in range(0, len(content), PAGE)
    }
    return state, found, ram


def loaded(stream: bytes) -> dict[str, dict[int, int]]:
    """What fills the pages of each block when QEMU has loaded a stream, written after ram_load_precopy."""
    memory: dict[str, dict[int, int]] = {}
    at, block = stream.index(qemu.end()) + len(qemu.end()), ""
    while stream[at] in (qemu.PART, qemu.END, 8):
        kind, at = stream[at], at + 5
        while kind != 8:
            (header,) = struct.unpack_from(">Q", stream, at)
            at += 8
            if header == qemu.EOS:
                assert stream[at] == 0x7E
                at += 5
                break
            if not header & CONTINUE:
                block, at = stream[at + 1 : at + 1 + stream[at]].decode(), at + 1 + stream[at]
            memory.setdefault(block, {})[header // PAGE] = stream[at]
            at += PAGE if header & qemu.DATA else 1
    assert stream[at:] == qemu.DEVICES
    return {name: {number: byte for number, byte in found.items() if byte} for name, found in memory.items()}


def filling(found: dict[int, bytes]) -> dict[int, int]:
    assert all(content == filled(content[0]) for content in found.values())
    return {number: content[0] for number, content in found.items()}


def test_pages_are_taken_out_in_long_runs() -> None:
    content = qemu.stream(part(pages(RAM, [(n, filled(n + 1)) for n in range(16)]), END))
    state, _, ram = split(content)
    assert ram == [(0, b"".join(filled(n + 1) for n in range(16)))]
    assert state == qemu.stream(part(kind=END))


def test_the_size_of_the_memory_is_known_before_it_is_read() -> None:
    splitter = Split(chunks(qemu.stream(), 100))
    assert splitter.size == 16 * PAGE


def test_other_blocks_and_devices_stay_in_the_state() -> None:
    state, found, _ = split(qemu.guest())
    assert filling(found) == qemu.MEMORY
    video = pages(VIDEO, [(0, filled(6)), (1, None), (2, filled(7))])
    again = pages(RAM, [(3, filled(9)), (5, None)]) + pages(VIDEO, [(2, None)])
    assert state == qemu.stream(part(), part(), part(), part(video), qemu.SWITCHOVER, part(again, END))


def test_pages_that_come_again_or_late_replace_those_in_the_memory() -> None:
    """A device may change a page while QEMU saves it: QEMU loads what stays in the state over the file's pages."""
    content = qemu.stream(
        part(pages(RAM, [(4, filled(1)), (2, filled(2)), (4, filled(3)), (5, filled(4)), (5, None)]), END)
    )
    state, found, _ = split(content)
    assert filling(found) == {4: 1, 5: 4}
    assert loaded(state) == {RAM: {2: 2, 4: 3}}
    assert loaded(content) == {RAM: {2: 2, 4: 3}}


def test_what_is_merged_loads_as_the_stream_itself() -> None:
    content = qemu.guest()
    state, _, ram = split(content)
    whole = b"".join(merge([state], ram))
    assert loaded(whole) == loaded(content)
    assert split(whole)[1] == split(content)[1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 11, 4095, 4096, 4097, 4104, 4105, 10_000])
def test_chunks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winlab.adapters.vm.chunks.AT_ONCE", 1)  # so that the small chunks stay small
    content = qemu.guest()
    state, found, ram = split(content, size)
    assert (state, found) == split(content)[:2]
    assert b"".join(merge(chunks(state, size), ram)) == b"".join(merge([state], split(content)[2]))


def test_a_chunk_may_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winlab.adapters.vm.chunks.AT_ONCE", 1)
    content = qemu.guest()
    whole = split(content)[0]
    for at in range(0, len(content), 5):
        assert b"".join(Split([content[:at], b"", content[at:]]).state(lambda *_: None)) == whole


@pytest.mark.parametrize("size", [1, 100, 4095, 4096, 4097, 9000, 1 << 20])
def test_memory_may_come_in_pieces_of_any_length(size: int) -> None:
    """libvirt sends a volume's content in pieces of 262,120 bytes."""
    state, found, ram = split(qemu.guest())
    content = b"".join(found.get(number, bytes(PAGE)) for number in range(16))
    pieces = [(at, content[at : at + size]) for at in range(0, len(content), size)]
    used = [(at, piece) for at, piece in pieces if piece.strip(b"\0")]  # a hole may begin and end anywhere
    assert b"".join(merge([state], pieces)) == b"".join(merge([state], used)) == b"".join(merge([state], ram))


def test_pages_are_completed_with_zeros() -> None:
    state = qemu.stream(part(kind=END))
    pieces = [(100, b"a"), (200, b"b"), (3 * PAGE - 1, b"cd"), (8 * PAGE, b"")]
    _, found, _ = split(b"".join(merge([state], pieces)))
    first = (bytes(100) + b"a" + bytes(99) + b"b").ljust(PAGE, b"\0")
    assert found == {0: first, 2: bytes(PAGE - 1) + b"c", 3: b"d" + bytes(PAGE - 1)}


def test_a_guest_without_memory_in_use() -> None:
    content = qemu.stream(part(pages(RAM, [(n, None) for n in range(16)]), END))
    state, found, _ = split(content)
    assert not found
    assert state == qemu.stream(part(kind=END))
    assert b"".join(merge([state], [])) == qemu.stream(part(), part(kind=END))


@pytest.mark.parametrize(
    "pieces", [[(0, b"a"), (0, b"b")], [(2 * PAGE, b"a"), (0, b"b")], [(16 * PAGE, b"a")], [(0, bytes(17 * PAGE))]]
)
def test_memory_that_does_not_fit_the_state_is_refused(pieces: list[tuple[int, bytes]]) -> None:
    with pytest.raises(StreamError, match="can't be split"):
        list(merge([qemu.stream(part(kind=END))], pieces))


@pytest.mark.parametrize("flags", [0x01, 0x04, 0x40, 0x80, 0x100, 0x200, 0x18, 0x12, 0x0A, 0x400])
@pytest.mark.parametrize("more", [0, CONTINUE])
def test_unknown_flags_are_refused(flags: int, more: int) -> None:
    """XBZRLE, COMPRESS_PAGE, HOOK, MULTIFD_FLUSH and others."""
    content = qemu.stream(part(record(0, 0, RAM, filled(1)) + record(flags | more, 1, "", b"") + bytes(PAGE), END))
    with pytest.raises(StreamError) as error:
        split(content)
    assert f"{flags | more:#x}" in error.value.why


HEAD = b"QEVM\0\0\0\3"
WHOLE = qemu.MACHINE + qemu.start()
CAPABILITIES = b"\5\x1aconfiguration/capabilities" + bytes(8)


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (b"QEVM\0\0\0\2", "begins with"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "begins with"),
        (HEAD + b"\7\0\1\0\0" + bytes(1 << 16), "65536 characters"),
        (HEAD + b"\7\xff\xff\xff\xff", "4294967295 characters"),
        (HEAD + qemu.MACHINE + CAPABILITIES, "section of type 05"),
        (HEAD + qemu.SWITCHOVER, "section of type 08"),
        (HEAD + qemu.start(kind=4), "section of type 04"),
        (HEAD + qemu.start("dirty-bitmap"), "dirty-bitmap"),
        (HEAD + qemu.start(version=5), "version"),
        (HEAD + WHOLE + qemu.record(qemu.EOS, content=b""), "flags 0x10"),
        (HEAD + WHOLE + qemu.sizes(flags=qemu.MEM_SIZE | 0x200), "flags 0x204"),
        (HEAD + WHOLE + qemu.sizes({VIDEO: PAGE}) + qemu.end(), "pc.ram is missing"),
        (HEAD + WHOLE + qemu.sizes({"ram-node0": PAGE, "ram-node1": PAGE}) + qemu.end(), "pc.ram is missing"),
        (HEAD + WHOLE + qemu.sizes({RAM: PAGE}, total=1 << 63), "ends too early"),
        (HEAD + WHOLE + qemu.sizes({RAM: 2 * PAGE}, total=PAGE), "where 4096 are left"),
        (HEAD + WHOLE + qemu.sizes({RAM: 0}, total=PAGE), "0 bytes"),
        (HEAD + WHOLE + qemu.sizes({RAM: 100}, total=PAGE), "100 bytes"),
        (HEAD + WHOLE + qemu.sizes({"": PAGE}), "b''"),
        (HEAD + WHOLE + qemu.sizes({RAM: PAGE}, total=2 * PAGE) + qemu.named(RAM) + bytes(8), "0 bytes"),
        (HEAD + WHOLE + qemu.sizes({str(n): PAGE for n in range(1001)}), "b'1000'"),
        (HEAD + WHOLE + qemu.sizes({RAM: 1 << 50}) + qemu.end(), "too large"),
        (HEAD + WHOLE + qemu.sizes() + pages(RAM, [(0, filled(1))]), "flags 0x8"),
        (HEAD + WHOLE + qemu.sizes() + qemu.end(section=4), "7e00000004"),
    ],
)
def test_a_stream_that_begins_differently_is_refused(begin: bytes, why: str) -> None:
    for attempt in (lambda: Split([begin]), lambda: list(merge([begin], []))):
        with pytest.raises(WinlabError) as error:
            attempt()
        assert why in f"{error.value} {error.value.why}"
        assert error.value.cure


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([part(record(CONTINUE, 0, "", filled(1)))], "block b''"),
        ([part(pages("pc.bios", [(0, filled(1))]))], "block b'pc.bios'"),
        ([part(pages(RAM, [(16, filled(1))]))], "page 0x10000 in"),
        ([part(pages(RAM, [(14, filled(1)), (15, filled(1)), (16, filled(1))]))], "page 0x10000 in"),
        ([part(pages(RAM, [(15, None), (16, None)]))], "page 0x10000 in"),
        ([part(pages(RAM, [(1 << 51, filled(1))]))], "page 0x8000000000000000 in"),
        ([part(pages(VIDEO, [(4, None)]))], "page 0x4000 in"),
        ([part(record(0, 0, RAM)[:-1] + b"a")], "filled with 61"),
        ([part(record(0, 0, RAM) + record(CONTINUE, 1)[:-1] + b"a" + record(CONTINUE, 2))], "filled with"),
        ([part(section=4)], "0200000004"),
        ([part()[:-1] + b"\4"], "7e00000004"),
        ([bytes.fromhex("0800010000")], "0800010000"),
        ([part(), qemu.SWITCHOVER, qemu.start("vfio")], "0100000003"),
    ],
)
def test_something_else_in_the_memory_is_refused(parts: list[bytes], why: str) -> None:
    with pytest.raises(StreamError) as error:
        split(qemu.stream(*parts, part(kind=END)))
    assert why in error.value.why


def test_a_stream_that_ends_too_early_is_reported() -> None:
    content = qemu.guest()
    last = len(content) - len(qemu.DEVICES)
    for length in [*range(0, last, 101), *range(last - 40, last)]:
        with pytest.raises(WinlabError, match="ends too early"):
            split(content[:length])


@pytest.mark.parametrize(
    "parts", [[part(pages(VIDEO, [(n, filled(1)) for n in range(4)]))], [part()] * 999, [qemu.SWITCHOVER] * 999]
)
def test_a_large_state_is_given_in_pieces(parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winlab.adapters.vm.guest_memory.AT_ONCE", 1000)
    content = qemu.stream(*parts, part(kind=END))
    pieces = list(Split(chunks(content, PAGE)).state(lambda *_: None))
    assert b"".join(pieces) == content
    assert len(pieces) > 3
    assert max(len(piece) for piece in pieces) < 3 * PAGE
