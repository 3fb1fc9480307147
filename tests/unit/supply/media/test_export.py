"""One self-contained ISO: the medium's complete files, both firmwares' entries, winlab's files beside them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from commands import ran
from isos import make_server_medium

from winlab.design.spec.model import Spec
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.operations import export_iso
from winlab.site import Site
from winlab.supply.media import export, inspection, windows_iso

OWN = {"Autounattend.xml": b"<unattend/>", "winlab/a/b.txt": b"q" * 5000}


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    return make_server_medium(tmp_path / "w.iso")


def contents(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    files = inspection.inspect(path).files
    return {one.path: data[one.begin or 0 : (one.begin or 0) + one.size] for one in files}


def test_all_files_are_exported_and_the_medium_is_unchanged(medium: Path, tmp_path: Path) -> None:
    before, made = medium.read_bytes(), tmp_path / "out.iso"
    export.build(medium, made, OWN, Quiet())
    assert medium.read_bytes() == before
    old, new = contents(medium), contents(made)
    left_out = {"/boot/bootfix.bin", "/boot.cat"}
    assert {name: text for name, text in new.items() if name in old and name not in left_out} == {
        name: text for name, text in old.items() if name not in left_out
    }
    assert "/boot/bootfix.bin" not in new
    assert {name: new[f"/{name}"] for name in OWN} == OWN
    assert made.stat().st_mode & 0o777 == 0o600


def test_it_boots_by_both_firmwares_without_a_key(medium: Path, tmp_path: Path) -> None:
    made = tmp_path / "out.iso"
    export.build(medium, made, OWN, Quiet())
    bios, uefi = windows_iso.boot_entries(made)
    assert (bios.platform, bios.sector_count, uefi.platform) == (0, 8, 0xEF)
    data = made.read_bytes()
    assert data[bios.load_sector * 2048 :][:1] == b"f"  # etfsboot.com
    assert data[uefi.load_sector * 2048 :][:1] == b"n"  # efisys_noprompt.bin
    assert not windows_iso.asks_for_a_key(made)
    assert inspection.inspect(made).problems == []


def test_a_boot_information_table_is_kept_true(medium: Path, tmp_path: Path) -> None:
    """Loaders of other makers find the rest of themselves by it; Microsoft's has none."""
    files = {one.path: one for one in inspection.inspect(medium).files}
    image, rest = files["/boot/etfsboot.com"], files["/sources/install.wim"]
    assert image.begin is not None
    assert rest.begin is not None
    with medium.open("r+b") as file:
        file.seek(image.begin + 8)
        file.write(struct.pack("<III", 16, rest.begin // 2048, rest.size))
    made = tmp_path / "out.iso"
    export.build(medium, made, OWN, Quiet())
    found = {one.path: one for one in inspection.inspect(made).files}
    begin = found["/boot/etfsboot.com"].begin
    assert begin is not None
    where = struct.unpack_from("<III", made.read_bytes(), begin + 8)
    assert where == (16, (found["/sources/install.wim"].begin or 0) // 2048, rest.size)


def test_media_that_can_t_be_exported(medium: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="already has a file"):
        export.build(medium, tmp_path / "x.iso", {"SOURCES/ei.cfg": b""}, Quiet())
    with pytest.raises(UsageError, match=r"has no efi/microsoft/boot/efisys_noprompt\.bin"):
        export.build(make_server_medium(tmp_path / "n.iso", noprompt=False), tmp_path / "x.iso", OWN, Quiet())
    assert not (tmp_path / "x.iso").exists()


def test_the_command(medium: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passwords are in no file that others read, and nothing is overwritten."""
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    to = tmp_path / "mine.iso"
    words = ["iso", "build", "--iso", str(medium), "--to", str(to), "--set", "workers.edition=standard-desktop"]
    done = ran(*words, "--name", "demo-1")
    assert done.exit_code == 0, done.stderr
    found = contents(to)
    assert b"<ComputerName>DEMO-1<" in found["/Autounattend.xml"]
    assert b"windowsPE" in found["/Autounattend.xml"]
    secrets = tmp_path / "mine.credentials"
    password = (secrets / "administrator-password").read_text().strip()
    assert password not in done.stdout + done.stderr
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    before = to.read_bytes()
    assert ran(*words).exit_code == 2
    assert to.read_bytes() == before


@pytest.mark.parametrize("to", ["a" * 300, "/"])
def test_an_invalid_target(to: str, medium: Path) -> None:
    alone = export_iso.make(Spec.load("1-1-1", iso=medium), "alone", lambda _event: None)
    with pytest.raises(UsageError, match=r"can't be (written|'/')"):
        export_iso.export(alone, Path(to), Site(), lambda _event: None)


@pytest.mark.parametrize("name", ["", "a_b", "1", "x" * 16, "a-"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="can't be called"):
        export_iso.make(Spec.load("1-1-1", os="windows-2022"), name, lambda _event: None)
