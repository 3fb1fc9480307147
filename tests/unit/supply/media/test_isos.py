"""Small ISOs, WIM headers and boot catalogs, read back independently of the code that wrote them."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pycdlib
import pytest
from isos import make_wim, make_windows_iso

from winlab.errors import UsageError
from winlab.supply.media import small_iso, windows_iso
from winlab.supply.media.wim import read_images

FILES = {
    "Autounattend.xml": b"<unattend/>",
    "winlab/bootstrap.ps1": b"exit",
    "winlab/administrators_authorized_keys": b"k" * 5000,
    "$WinPEDriver$/NetKVM/netkvm.inf": b"",
}


def test_small_iso_by_joliet_and_rock_ridge(tmp_path: Path) -> None:
    path = tmp_path / "a.iso"
    small_iso.write(path, "WINLAB", FILES)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    try:
        assert iso.pvd.volume_identifier.strip() == b"WINLAB"
        for name, content in FILES.items():
            for kind in ("joliet_path", "rr_path"):
                out = io.BytesIO()
                iso.get_file_from_iso_fp(out, **{kind: f"/{name}"})
                assert out.getvalue() == content
    finally:
        iso.close()


def test_long_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.iso"
    with pytest.raises(UsageError, match="too long"):
        small_iso.write(path, "WINLAB", {"x" * 65: b""})
    assert not path.exists()


def test_wim_images() -> None:
    found = read_images(io.BytesIO(make_wim(["A", "B"])), "x.wim")
    assert [(i.index, i.name, i.build) for i in found] == [(1, "A", 20348), (2, "B", 20348)]


@pytest.mark.parametrize(
    ("wim", "says"),
    [
        (b"", "not a WIM"),
        (b"MSWIM\0\0\0", "not a WIM"),
        (make_wim(["A"], flags=4), "can't be read"),
        (make_wim(["A"], parts=2), "split WIM"),
        (make_wim(["A"], cut=3), "truncated"),
        (make_wim(["<"]), "damaged"),
    ],
)
def test_bad_wims(wim: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_images(io.BytesIO(wim), "x.wim")


def test_windows_media(tmp_path: Path) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["Windows Server 2022 SERVERSTANDARD"]))
    entries = windows_iso.boot_entries(path)
    assert [(e.platform, e.sector_count) for e in entries] == [(0, 8), (0xEF, 1)]


def patched(path: Path) -> bytes:
    """The medium as a machine sees it through the overlay."""
    image = bytearray(path.read_bytes())
    for offset, content in windows_iso.no_prompt_patches(path):
        image[offset : offset + len(content)] = content
    return bytes(image)


def test_the_overlay_makes_the_catalog_point_at_the_image_without_prompt(tmp_path: Path) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["A"]))
    assert windows_iso.asks_for_a_key(path)
    assert not windows_iso.must_have_a_key(path)
    before = path.read_bytes()
    image = patched(path)
    assert sum(a != b for a, b in zip(before, image, strict=True)) < 16
    path.write_bytes(image)
    entry = windows_iso.boot_entries(path)[1]
    assert image[entry.load_sector * 2048 :][:1] == b"n"
    assert windows_iso.no_prompt_patches(path) == []
    assert not windows_iso.asks_for_a_key(path)


def test_the_overlay_hides_the_prompt_under_bios(tmp_path: Path) -> None:
    """And nothing else in that folder; the descriptor's checksum and CRC are right (ECMA-167 4/7.2)."""
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["A"]))
    path.write_bytes(patched(path))
    with windows_iso.opened(path) as iso:
        names = {child.file_identifier() for child in iso.list_children(udf_path="/boot") if child is not None}
    assert names == {b"bcd", b"bootfix.off", b"etfsboot.com"}
    image = path.read_bytes()
    at = image.index(b"\x08bootfix.off") - 38
    tag, covered = image[at : at + 16], image[at + 16 : at + 16 + int.from_bytes(image[at + 10 : at + 12], "little")]
    assert tag[4] == (sum(tag) - tag[4]) % 256
    assert int.from_bytes(tag[8:10], "little") == crc16(covered)


def crc16(data: bytes) -> int:
    """x^16 + x^12 + x^5 + 1, bit by bit."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1) ^ (0x1021 if value & 0x8000 else 0)
            value &= 0xFFFF
    return value


def test_media_that_always_ask_for_a_key(tmp_path: Path) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["A"]), noprompt=False)
    assert windows_iso.must_have_a_key(path)
    assert len(windows_iso.no_prompt_patches(path)) == 1  # BIOS' alone
    make_windows_iso(path, wim=make_wim(["A"]), uefi=False)
    assert not windows_iso.asks_for_a_key(path)
