"""One self-contained ISO: read back by a reader that is not ours, also at real size, and booted by both firmwares."""

from __future__ import annotations

import hashlib
import subprocess  # noqa: TID251 - 7z and GRUB, which know nothing of winlab
import zlib
from pathlib import Path

import pytest
from bare import machine
from harness import Winlab, stand_in_medium

from winlab.supply.media import inspection
from winlab_standin.builder import iso

SIZE = (4 << 30) + 123_457  # bytes of install.wim: beyond the 4 GiB of ISO 9660


@pytest.fixture(scope="module")
def large(host: None, winlab: Winlab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's medium with an install.wim as large as Microsoft's: behind its streams comes nothing but zeros."""
    path = stand_in_medium(winlab)
    folder = tmp_path_factory.mktemp("large")
    files: dict[str, Path | bytes] = {}
    with path.open("rb") as source:
        for one in inspection.inspect(path).files:
            if one.path not in ("/README.TXT", "/boot.cat"):
                source.seek(one.begin or 0)
                files[one.path] = source.read(one.size)
    wim = folder / "install.wim"
    with wim.open("wb") as file:
        content = files["/sources/install.wim"]
        assert isinstance(content, bytes)
        file.write(content)
        file.truncate(SIZE)
    medium = folder / "large.iso"
    iso.write(medium, {**files, "/sources/install.wim": wim})
    wim.unlink()
    return medium


def export(winlab: Winlab, medium: Path, folder: Path) -> Path:
    target = folder / "exported.iso"
    words = ["--os", "windows-2022", "--iso", str(medium), "--to", str(target), "--name", "demo"]
    winlab.ok("iso", "build", *words, "--set", "workers.bus=sata")
    return target


@pytest.fixture(scope="module")
def exported(host: None, winlab: Winlab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the stand-in's medium as it is."""
    return export(winlab, stand_in_medium(winlab), tmp_path_factory.mktemp("exported"))


def names_by_7z(medium: Path) -> list[str]:
    """The files in the UDF tree, as 7-Zip lists them."""
    listed = subprocess.run(["7z", "l", "-tudf", "-slt", medium], capture_output=True, text=True, check=True).stdout
    rows = [dict(line.split(" = ", 1) for line in row.splitlines() if " = " in line) for row in listed.split("\n\n")]
    return [row["Path"] for row in rows if row.get("Folder") == "-"]


def read_by_7z(medium: Path, name: str) -> tuple[str, int]:
    """The SHA-256 and the CRC-32 of a file in the UDF tree, as 7-Zip reads it."""
    digest, crc = hashlib.sha256(), 0
    with subprocess.Popen(["7z", "x", "-tudf", "-so", medium, name], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := process.stdout.read(1 << 22):
            digest.update(piece)
            crc = zlib.crc32(piece, crc)
    assert process.returncode == 0
    return digest.hexdigest(), crc


def crc_by_grub(medium: Path, name: str) -> int:
    """The CRC-32 of a file, as GRUB's own UDF driver reads it."""
    command = ["grub-fstest", str(medium), "crc", f"/{name}"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout, 16)


@pytest.mark.slow  # three minutes
def test_every_file_is_copied_whole_even_over_4_gib(large: Path, winlab: Winlab) -> None:
    """Neither reader knows anything of winlab, nor of the library that it writes with."""
    exported = export(winlab, large, large.parent)
    there = inspection.inspect(exported)
    assert there.problems == []
    assert next(one.size for one in there.files if one.path == "/sources/install.wim") == SIZE
    # the catalog is new; the second asks for a key; the third is a loader that has in it where it lies
    own = {"boot.cat", "boot/bootfix.bin", "boot/etfsboot.com"}
    before = {name: read_by_7z(large, name) for name in names_by_7z(large) if name not in own}
    after = {name: read_by_7z(exported, name) for name in names_by_7z(exported)}
    assert len(before) > 10
    assert before.items() <= after.items()
    assert {"Autounattend.xml", "winlab/bootstrap.ps1"} <= after.keys() - before.keys()
    assert {name: crc for name, (_, crc) in after.items()} == {name: crc_by_grub(exported, name) for name in after}


def test_7z_finds_nothing_wrong(exported: Path) -> None:
    listed = subprocess.run(["7z", "l", "-tudf", exported], capture_output=True, text=True, check=True).stdout
    for name in ("sources/install.wim", "winlab/bootstrap.ps1", "efi/boot/bootx64.efi"):
        assert name in listed
    assert "Warnings" not in listed


@pytest.mark.parametrize("uefi", [True, False], ids=["OVMF", "SeaBIOS"])
def test_it_boots_and_finds_its_own_answers(exported: Path, tmp_path: Path, uefi: bool) -> None:
    with machine(tmp_path, exported, uefi=uefi) as booted:
        booted.wait_for("Autounattend.xml")
        assert "Press any key" not in booted.text()


@pytest.mark.slow
@pytest.mark.parametrize(("firmware", "bus"), [("bios", "virtio-blk"), ("uefi", "sata")])
def test_it_installs_by_itself(host: None, winlab: Winlab, tmp_path: Path, firmware: str, bus: str) -> None:
    """From an empty disk to a bootstrap that is done. Golden images are installed with UEFI on virtio-scsi."""
    stand_in_medium(winlab)
    words = ["--set", f"workers.firmware={firmware}", "--set", f"workers.bus={bus}"]
    winlab.ok("iso", "build", "--rehearse", "--to", str(tmp_path / "small.iso"), *words)
    with machine(tmp_path, tmp_path / "small.iso", uefi=firmware == "uefi", bus=bus) as booted:
        assert booted.wait_for("winlab: phase=ready", "refused", "error=") == "winlab: phase=ready"
        said = booted.text()
    order = [said.index(f"winlab: phase={phase}") for phase in ("windowsPE", "specialize", "firstLogon", "ready")]
    assert order == sorted(order)
    assert (tmp_path / "small.credentials/administrator-password").read_text().strip() not in said
