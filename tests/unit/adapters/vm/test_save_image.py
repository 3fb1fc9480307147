"""libvirt's image of a saved machine."""

from __future__ import annotations

import struct

import pytest

from winlab.adapters.vm.save_image import header as made
from winlab.adapters.vm.save_image import read_header
from winlab.errors import WinlabError

XML, COOKIE, STREAM = "<domain><name>grün</name></domain>", "<cookie/>", b"QEVM" + bytes(range(256))


def header(
    magic: bytes = b"LibvirtQemudSave",
    version: int = 2,
    length: int = 40,
    form: int = 0,
    cookie: int = 30,
    order: str = "<",
) -> bytes:
    return struct.pack(f"{order}16s5I56x", magic, version, length, 1, form, cookie)


@pytest.mark.parametrize("size", [1, 91, 92, 93, 1000])
@pytest.mark.parametrize("cookie", ["", COOKIE])
@pytest.mark.parametrize("running", [True, False])
def test_an_image_is_read_as_it_was_written(size: int, cookie: str, running: bool) -> None:
    content = made(XML, cookie, running) + STREAM
    image = read_header(content[at : at + size] for at in range(0, len(content), size))
    assert (image.xml, image.cookie, image.running) == (XML, cookie, running)
    assert b"".join(image.stream) == STREAM


def test_libvirts_own_images_have_room_for_a_longer_xml() -> None:
    xml, cookie = XML.encode() + b"\0", COOKIE.encode() + b"\0" + bytes(1 << 16)
    image = read_header([header(length=len(xml + cookie), cookie=len(xml)), xml, cookie, STREAM])
    assert (image.xml, image.cookie, b"".join(image.stream)) == (XML, COOKIE, STREAM)
    image = read_header([header(length=len(xml + cookie), cookie=0), xml, cookie, STREAM])
    assert (image.xml, image.cookie, b"".join(image.stream)) == (XML, "", STREAM)


def test_the_layout_is_libvirts() -> None:
    content = made("<a/>", "<b/>")
    assert content[:36] == b"LibvirtQemudSave" + bytes.fromhex("02000000 0a000000 01000000 00000000 05000000")
    assert content[36:] == bytes(56) + b"<a/>\0<b/>\0"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (header(b"LibvirtQemudPart"), "did not finish"),
        (header(b"\x7fELF"), "ELF"),
        (header(version=1), "version 1"),
        (header(version=3), "version 3"),
        (header(order=">"), "byte order"),
        (header(form=1), "format 1"),
        (header(form=6), "sparse"),
        (header(length=0, cookie=0), "0 bytes"),
        (header(length=40, cookie=41) + bytes(50), "begins at 41"),
        (header(length=0xFFFFFFFF, cookie=0), "4294967295 bytes"),
        (header(length=0xFFFFFFFF, cookie=0xFFFFFFFF), "4294967295 bytes"),
        (header(length=0xFFFFFFFF), "4294967295 bytes"),
        (header() + b"a" * 40, "no end"),
        (header() + b"a" * 29 + b"\0" + b"b" * 10, "no end"),
        (header() + b"\xff" + bytes(39), "not UTF-8"),
        (b"", "92 bytes should follow, and 0 do"),
        (header()[:91], "92 bytes should follow, and 91 do"),
        (header() + b"a" * 29, "30 bytes should follow, and 29 do"),
        (header() + b"a" * 29 + b"\0" + b"b" * 9, "10 bytes should follow, and 9 do"),
    ],
)
def test_other_images_are_refused(content: bytes, why: str) -> None:
    with pytest.raises(WinlabError) as error:
        read_header([content])
    assert why in error.value.why
    assert error.value.cure
