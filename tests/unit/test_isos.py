"""Small ISOs, WIM headers and boot catalogs, read back independently of the code that wrote them."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pycdlib
import pytest
from isos import make_wim, make_windows_iso

from winlab.errors import UsageError
from winlab.media import drivers, small_iso, windows_iso
from winlab.media.wim import read_images

FILES = {
    "Autounattend.xml": b"<unattend/>",
    "winlab/bootstrap.ps1": b"exit",
    "winlab/administrators_authorized_keys": b"k" * 5000,
    "drv/NetKVM/netkvm.inf": b"",
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
    assert [i.name for i in windows_iso.images(path)] == ["Windows Server 2022 SERVERSTANDARD"]
    entries = windows_iso.boot_entries(path)
    assert [(e.platform, e.sector_count) for e in entries] == [(0, 8), (0xEF, 1)]


def test_the_patch_makes_the_catalog_point_at_the_image_without_prompt(tmp_path: Path) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["A"]))
    patch = windows_iso.no_prompt_patch(path)
    assert patch is not None
    offset, content = patch
    assert len(content) == 4
    image = bytearray(path.read_bytes())
    image[offset : offset + 4] = content
    path.write_bytes(image)
    entry = windows_iso.boot_entries(path)[1]
    assert image[entry.load_sector * 2048 :][:1] == b"n"
    assert windows_iso.no_prompt_patch(path) is None


@pytest.mark.parametrize(
    ("keywords", "says"),
    [({"wim": None}, "has no /sources/install.wim"), ({"wim": b"MSW"}, "not a WIM")],
)
def test_other_isos_are_named(tmp_path: Path, keywords: dict[str, bytes | None], says: str) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, **keywords)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=says):
        windows_iso.images(path)


def test_media_that_ask_for_a_key_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "w.iso"
    make_windows_iso(path, wim=make_wim(["A"]), noprompt=False)
    with pytest.raises(UsageError, match=r"has no /efi/microsoft/boot/efisys_noprompt\.bin"):
        windows_iso.no_prompt_patch(path)
    make_windows_iso(path, wim=make_wim(["A"]), uefi=False)
    with pytest.raises(UsageError, match="can't be booted by UEFI"):
        windows_iso.no_prompt_patch(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"", "not a readable ISO"),
        (b"\0" * 70000, "not a readable ISO"),
    ],
)
def test_files_that_are_no_isos(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "w.iso"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        windows_iso.images(path)
    with pytest.raises(UsageError, match="can't be read"):
        windows_iso.images(tmp_path / "missing.iso")


def test_linux_isos_are_named(tmp_path: Path) -> None:
    path = tmp_path / "l.iso"
    small_iso.write(path, "LINUX", {"a": b"b"})
    with pytest.raises(UsageError, match="no UDF file system"):
        windows_iso.images(path)


def make_virtio_win(path: Path, folders: list[str]) -> None:
    files = {f"{folder}/{name}": name.encode() for folder in folders for name in ("d.inf", "d.sys", "d.pdb", "d.exe")}
    small_iso.write(path, "virtio-win", files)


def test_drivers_are_staged_for_the_release(tmp_path: Path) -> None:
    path = tmp_path / "v.iso"
    make_virtio_win(path, ["vioscsi/2k22/amd64", "NetKVM/2k22/amd64", "NetKVM/2k19/amd64", "qxl/2k22/amd64"])
    found = drivers.stage(path, "2022")
    assert sorted(found) == [f"drv/{d}/d.{e}" for d in ("NetKVM", "vioscsi") for e in ("exe", "inf", "sys")]
    with pytest.raises(UsageError, match="has no vioscsi for Windows Server 2019"):
        drivers.stage(path, "2019")
    with pytest.raises(UsageError, match="can't be read"):
        drivers.stage(tmp_path / "missing.iso", "2022")
