"""A machine's screen: libvirt gives a PPM or a PNG, as QEMU is."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from winlab.adapters.vm import screen
from winlab.errors import WinlabError

PPM = b"P6\n6 4\n255\n" + bytes(range(6 * 4 * 3))


def png(ppm: bytes) -> bytes:
    made = io.BytesIO()
    Image.open(io.BytesIO(ppm)).save(made, "PNG")
    return made.getvalue()


def test_a_screen_for_users_is_a_png() -> None:
    assert png(screen.converted(PPM, "PNG")) == png(PPM)
    assert screen.converted(png(PPM), "PNG") == png(PPM)


def test_a_screen_that_is_compared_is_a_ppm() -> None:
    """A PNG compared as it is would never change: all its signatures would be empty."""
    for image in (PPM, png(PPM)):
        ppm = screen.converted(image, "PPM")
        assert screen.signature(ppm) == screen.signature(PPM) != b""
        assert screen.reduced(ppm) == screen.reduced(PPM) is not None


@pytest.mark.parametrize(
    "image", [b"", b"GIF89a", png(PPM)[:50], PPM[:-1]], ids=["nothing", "gif", "half a png", "half a ppm"]
)
def test_malformed_screens_are_reported(image: bytes) -> None:
    with pytest.raises(WinlabError, match="unknown format"):
        screen.converted(image, "PPM" if image.startswith(b"\x89") else "PNG")
