"""Media that were rebuilt with virtio's drivers: found out from the metadata of their WIMs, as wimlib lists them."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import results
from commands import ran
from isos import EVAL, SERVER, make_server_medium, make_wim

from winlab.errors import HostError
from winlab.supply.media import drivers, small_iso, wim_drivers

FILE = b"the content of a file" * 100


def with_files(wim: bytes, metadata: list[bytes], *, compressed: bool = False) -> bytes:
    """A WIM as :func:`make_wim` makes it, with a file, the metadata of its images, and a table of these."""
    made, rows = bytearray(wim), b""
    for content, flags in ((FILE, 0), *((one, wim_drivers.METADATA) for one in metadata)):
        rows += struct.pack("<QQQHI20s", len(content) | flags << 56, len(made), len(content), 1, 1, b"\1" * 20)
        made += content
    flags = wim_drivers.COMPRESSED if compressed else 0
    struct.pack_into("<QQQ", made, wim_drivers.BLOB_TABLE, len(rows) | flags << 56, len(made), len(rows))
    return bytes(made) + rows


SETUP = make_wim(["Microsoft Windows PE (amd64)", "Microsoft Windows Setup (amd64)"], kind="WindowsPE")
IMAGES = make_wim([SERVER, "Windows Server 2022 SERVERSTANDARDCORE"], edition="ServerStandardEval")
BOOT = with_files(SETUP, [b"pe", b"of setup"])
INSTALL = with_files(IMAGES, [b"of desktop", b"of core"])


class Wimlib:
    """It lists what it finds in the skeleton of a WIM."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **files: tuple[str, ...]) -> None:
        self.files: dict[str, tuple[str, ...]] = {"boot": (), "install": (), **files}
        self.asked: list[str] = []
        monkeypatch.setattr(wim_drivers, "which", lambda _: "/usr/bin/wimlib-imagex")
        monkeypatch.setattr(wim_drivers, "watched", self.watched)

    def watched(self, words: list[Any], **_: object) -> SimpleNamespace:
        program, verb, skeleton, index, path = words
        assert (program, verb, path) == ("wimlib-imagex", "dir", "--path=/Windows/System32/drivers")
        content = skeleton.read_bytes()
        assert FILE not in content
        which = "boot" if b"of setup" in content else "install"
        self.asked.append(f"{which} {index}")
        folder = "/Windows/System32/drivers"
        return SimpleNamespace(stdout="\n".join([folder, *(f"{folder}/{name}" for name in self.files[which])]))


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    return make_server_medium(tmp_path / "w.iso", wim=INSTALL, files={"boot.wim": BOOT, "EI.CFG": EVAL})


def test_drivers_count_that_windows_pe_and_the_image_have(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wimlib = Wimlib(monkeypatch, boot=("VIOSCSI.SYS", "netkvm.sys", "disk.sys"), install=("vioscsi.sys", "viostor.sys"))
    assert wim_drivers.of(medium) == {"vioscsi", "NetKVM"}
    assert wim_drivers.of(medium, "Windows Server 2022 SERVERSTANDARDCORE") == {"vioscsi"}
    assert wim_drivers.of(medium, "2") == {"vioscsi"}
    assert wimlib.asked == ["boot 2", *("boot 2", "install 2") * 2]
    assert wim_drivers.of(medium, "Windows Server 2025 SERVERSTANDARDCORE") == frozenset()


def test_setup_is_given_none_of_them(tmp_path: Path) -> None:
    """They are installed at the first logon. Setup of 2025 may end at a driver that its Windows PE has."""
    iso = tmp_path / "v.iso"
    small_iso.write(iso, "V", {f"{name}/2k22/amd64/d.inf": b"" for name in ("vioscsi", "NetKVM")})
    staged = drivers.stage(iso, "2022", "virtio-scsi", "virtio", there=lambda: {"vioscsi"})
    assert staged.keys() == {"$WinPEDriver$/NetKVM/d.inf", "drv2/vioscsi/d.inf"}


def test_what_can_not_be_found_out_counts_as_none(
    medium: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_server_medium(tmp_path / "plain.iso")
    packed = with_files(SETUP, [b"pe", b"of setup"], compressed=True)
    odd = make_server_medium(tmp_path / "odd.iso", wim=INSTALL, files={"boot.wim": packed, "EI.CFG": EVAL})
    cut = make_server_medium(tmp_path / "cut.iso", wim=INSTALL, files={"boot.wim": BOOT[:-60], "EI.CFG": EVAL})
    wimlib = Wimlib(monkeypatch, boot=("vioscsi.sys",))
    for path in (plain, odd, cut):
        assert wim_drivers.of(path) == frozenset()
    assert wimlib.asked == []

    def refuse(*_: object, **_more: object) -> None:
        raise HostError("it took too long")

    monkeypatch.setattr(wim_drivers, "watched", refuse)
    assert wim_drivers.of(medium) == frozenset()
    monkeypatch.setattr(wim_drivers, "which", lambda _: None)
    monkeypatch.setattr(wim_drivers, "watched", lambda *_, **__: pytest.fail("it is not installed"))
    assert wim_drivers.of(medium) == frozenset()


def test_metadata_keep_their_places(tmp_path: Path) -> None:
    wim_drivers.copy_metadata(io.BytesIO(INSTALL), tmp_path / "s.wim")
    begin = INSTALL.index(FILE)
    hole = INSTALL[:begin] + b"\0" * len(FILE) + INSTALL[begin + len(FILE) :]
    assert (tmp_path / "s.wim").read_bytes() == hole


def test_iso_inspect_names_them(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Wimlib(monkeypatch, boot=("viostor.sys",))
    assert "has drivers of its own for virtio: viostor" in ran("iso", "inspect", str(medium), "-o", "wide").stdout
    assert results.item(ran("iso", "inspect", str(medium), "--output", "json").stdout)["virtio"] == ["viostor"]
