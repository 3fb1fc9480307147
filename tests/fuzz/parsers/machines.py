"""Saved machines: images of libvirt, and the streams of QEMU in them. A snapshot may come from anyone."""

from __future__ import annotations

from pathlib import Path

import migrations
import mutation
from fuzzing import parser

from winlab.adapters.vm.guest_memory import PAGE, Split, merge
from winlab.adapters.vm.save_image import header, read_header

Pages = dict[int, bytes]


def taken(content: bytes) -> tuple[bytes, list[tuple[int, bytes]], Pages]:
    """The state, the memory as it comes, and its pages that are not zero."""
    ram: list[tuple[int, bytes]] = []
    split = Split(content[at : at + 1000] for at in range(0, len(content), 1000))
    state = b"".join(split.state(lambda offset, content: ram.append((offset, content))))
    pages: Pages = {}
    after = 0
    for offset, part in ram:
        assert after <= offset, "memory does not ascend"
        after = offset + len(part)
        pages |= {offset + at: part[at : at + PAGE] for at in range(0, len(part), PAGE)}
    assert after <= split.size, "memory beyond its end"
    return state, ram, {offset: page for offset, page in pages.items() if page.strip(b"\0")}


def machines() -> list[bytes]:
    return [header("<domain/>", cookie) + migrations.guest() for cookie in ("", "<cookie/>")]


@parser("saved-machine", machines, mutation.BYTES)
def saved_machine(content: bytes, folder: Path) -> None:
    image = read_header([content])
    assert "\0" not in image.xml + image.cookie
    state, ram, pages = taken(b"".join(image.stream))
    assert taken(b"".join(merge([state], ram)))[2] == pages, "other memory after a merge"


@parser("guest-memory", lambda: [migrations.guest()], mutation.BYTES)
def guest_memory(content: bytes, folder: Path) -> None:
    state, ram, pages = taken(content)
    assert taken(b"".join(merge([state], ram)))[2] == pages, "other memory after a merge"
