"""The media that --rehearse takes, under real firmware: they prompt as Microsoft's do; with the overlay they don't."""

from __future__ import annotations

import hashlib
import os
import subprocess  # noqa: TID251 - runs QEMU by hand
from collections.abc import Iterator
from pathlib import Path

import pycdlib
import pytest
from bare import machine
from harness import Winlab, stand_in_medium

from winlab.design.catalog import recipes
from winlab.supply.images import cache
from winlab.supply.media import noprompt, wim_drivers, windows_iso

PROMPT = "Press any key to boot from CD or DVD"
SETUP = "setup: Windows Setup has started"
OTHER = "windows-rehearsal-2025"
ROOT = "/Windows/System32/standin/root.sqfs"


@pytest.fixture(scope="module")
def medium(host: None, winlab: Winlab) -> Path:
    return stand_in_medium(winlab)


@pytest.fixture(scope="module")
def other(medium: Path, winlab: Winlab) -> Iterator[Path]:
    """The media of another release."""
    winlab.ok("image", "build", OTHER, "--medium")
    image = cache.lookup(recipes.get(OTHER))
    assert image is not None
    yield image.path
    winlab.ok("image", "rm", image.key)  # there may be others of this name, made by other winlabs


def test_media_of_another_release_hold_the_same_system(
    medium: Path, other: Path, winlab: Winlab, tmp_path: Path
) -> None:
    (report,) = winlab.items("iso", "inspect", str(other))
    assert (report["release"], report["problems"]) == ("2025", [])
    assert {image["build"] for image in report["images"]} == {26100}
    assert {tuple(image["languages"]) for image in report["images"]} == {("en-US", "fr-FR")}
    inside = []
    for path in (medium, other):
        iso = pycdlib.PyCdlib()
        iso.open(str(path))
        try:
            iso.get_file_from_iso(str(tmp_path / "install.wim"), udf_path="/sources/install.wim")
        finally:
            iso.close()
        words = ["wimlib-imagex", "extract", tmp_path / "install.wim", "1", ROOT, "--to-stdout"]
        inside.append(hashlib.sha256(subprocess.run(words, capture_output=True, check=True).stdout).hexdigest())
        subprocess.run(["wimlib-imagex", "verify", tmp_path / "install.wim"], capture_output=True, check=True)
    assert inside[0] == inside[1]


def test_the_catalog_matches_that_of_microsoft(medium: Path) -> None:
    entries = windows_iso.boot_entries(medium)
    assert [(entry.platform, entry.sector_count) for entry in entries] == [(0, 8), (0xEF, 1)]
    with medium.open("rb") as file:
        file.seek(22 * 2048)
        assert b"Microsoft Corporation" in file.read(32)


def test_images_are_real_wims(medium: Path, tmp_path: Path) -> None:
    """wimlib, which knows nothing of winlab, verifies every stream."""
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


def test_wimlib_lists_an_image_s_drivers_by_its_metadata_alone(tmp_path: Path) -> None:
    """Of a compressed WIM, as Microsoft's are."""
    for name, driver in (("pe", "VIOSCSI.SYS"), ("setup", "netkvm.sys")):
        folder = tmp_path / name / "Windows/System32/drivers"
        folder.mkdir(parents=True)
        (folder / driver).write_bytes(b"x")
        (tmp_path / name / "large").write_bytes(os.urandom(1 << 20))
        verb = "append" if (tmp_path / "boot.wim").exists() else "capture"
        words = ["wimlib-imagex", verb, tmp_path / name, tmp_path / "boot.wim", name, "--compress=LZX"]
        subprocess.run(words, capture_output=True, check=True)
    for index, drivers in ((1, {"vioscsi"}), (2, {"NetKVM"})):
        with (tmp_path / "boot.wim").open("rb") as file:
            assert wim_drivers._of_image(file, index, tmp_path / "skeleton.wim") == drivers
    assert (tmp_path / "skeleton.wim").stat().st_blocks * 512 < 1 << 20


def test_untouched_media_ask_for_a_key_and_give_up(medium: Path, tmp_path: Path) -> None:
    with machine(tmp_path, medium, uefi=True) as booted:
        booted.wait_for(PROMPT)
        # the firmware goes on to its next choice, which is what the one loader leaves it
        booted.wait_for("BdsDxe: failed to start", "BdsDxe: No bootable option", "UEFI Interactive Shell", "PXE")
        assert SETUP not in booted.text()


@pytest.mark.slow  # a whole boot for one key
def test_untouched_media_start_by_a_key(medium: Path, tmp_path: Path) -> None:
    with machine(tmp_path, medium, uefi=True) as booted:
        booted.wait_for(SETUP, key="ret", at=PROMPT)


@pytest.mark.slow  # golden images are installed by it
def test_the_overlay_needs_no_key(medium: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "media.qcow2"
    noprompt.make(medium, overlay, medium)
    assert overlay.stat().st_size < 1 << 20
    with machine(tmp_path, overlay, uefi=True) as booted:
        booted.wait_for(SETUP)
        assert PROMPT not in booted.text()


@pytest.mark.slow  # test_media_export.py boots the loaders of the other release
def test_bios_reaches_setup(other: Path, tmp_path: Path) -> None:
    with machine(tmp_path, other, uefi=False) as booted:
        booted.wait_for(SETUP)
