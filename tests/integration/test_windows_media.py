"""The media that --rehearse takes, under real firmware: they prompt as Microsoft's do; with the overlay they don't."""

from __future__ import annotations

import subprocess  # noqa: TID251 - runs QEMU by hand
from pathlib import Path

import pytest
from bare import machine
from harness import Winlab, stand_in_medium

from winlab.supply.media import noprompt, windows_iso

PROMPT = "Press any key to boot from CD or DVD"
SETUP = "setup: Windows Setup has started"


@pytest.fixture(scope="module")
def medium(host: None, winlab: Winlab) -> Path:
    return stand_in_medium(winlab)


def test_catalog_is_as_microsofts(medium: Path) -> None:
    entries = windows_iso.boot_entries(medium)
    assert [(entry.platform, entry.sector_count) for entry in entries] == [(0, 8), (0xEF, 1)]
    with medium.open("rb") as file:
        file.seek(22 * 2048)
        assert b"Microsoft Corporation" in file.read(32)


def test_images_are_real_wims(medium: Path, tmp_path: Path) -> None:
    """wimlib, which knows nothing of winlab, verifies every stream."""
    import pycdlib

    for name, images in (("install.wim", 4), ("boot.wim", 2)):
        iso = pycdlib.PyCdlib()
        iso.open(str(medium))
        try:
            iso.get_file_from_iso(str(tmp_path / name), udf_path=f"/sources/{name}")
        finally:
            iso.close()
        info = subprocess.run(["wimlib-imagex", "info", tmp_path / name], capture_output=True, text=True, check=True)
        assert f"Image Count:    {images}" in info.stdout
        subprocess.run(["wimlib-imagex", "verify", tmp_path / name], capture_output=True, check=True)


def test_untouched_media_ask_for_a_key_and_give_up(medium: Path, tmp_path: Path) -> None:
    with machine(tmp_path, medium, uefi=True) as booted:
        booted.wait_for(PROMPT)
        # the firmware goes on to its next choice, which is what the one loader leaves it
        booted.wait_for("BdsDxe: failed to start", "BdsDxe: No bootable option", "UEFI Interactive Shell", "PXE")
        assert SETUP not in booted.text()


def test_untouched_media_start_by_a_key(medium: Path, tmp_path: Path) -> None:
    with machine(tmp_path, medium, uefi=True) as booted:
        booted.wait_for(PROMPT)
        booted.key("ret")
        booted.wait_for(SETUP)


def test_the_overlay_needs_no_key(medium: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "media.qcow2"
    noprompt.make(medium, overlay, medium)
    assert overlay.stat().st_size < 1 << 20
    with machine(tmp_path, overlay, uefi=True) as booted:
        booted.wait_for(SETUP)
        assert PROMPT not in booted.text()


def test_bios_reaches_setup(medium: Path, tmp_path: Path) -> None:
    with machine(tmp_path, medium, uefi=False) as booted:
        booted.wait_for(SETUP)
