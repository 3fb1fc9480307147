"""The media that --rehearse takes, under real firmware: they prompt as Microsoft's do; with the overlay they don't."""

from __future__ import annotations

import shutil
import socket
import subprocess  # noqa: TID251 - runs QEMU by hand
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import Winlab

from winlab import catalog
from winlab.media import cache, noprompt, windows_iso

PROMPT = "Press any key to boot from CD or DVD"
SETUP = "setup: Windows Setup has started"
LIMIT = 300  # a bound for a machine that hangs, no expectation


@pytest.fixture(scope="module")
def medium(host: None, winlab: Winlab) -> Path:
    winlab.ok("image", "build", "windows-rehearsal")
    image = cache.lookup(catalog.get("windows-rehearsal"))
    assert image is not None
    return image.path


class Machine:
    """A bare machine with a CD: no libvirt, no network, no disk."""

    def __init__(self, folder: Path) -> None:
        self.serial = folder / "serial"
        self._monitor = folder / "monitor"

    def text(self) -> str:
        return self.serial.read_text(errors="replace") if self.serial.exists() else ""

    def wait_for(self, *words: str) -> str:
        """Wait until one of the words is on the serial port; which."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            for word in words:
                if word in self.text():
                    return word
            time.sleep(0.3)
        raise AssertionError(f"none of {words} in:\n{self.text()[-2000:]}")

    def key(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._monitor))
            monitor.recv(1024)
            monitor.sendall(f"sendkey {name}\n".encode())
            time.sleep(0.3)


@contextmanager
def machine(folder: Path, cd: Path, *, uefi: bool) -> Iterator[Machine]:
    firmware: list[str] = []
    if uefi:
        variables = folder / "vars.fd"
        shutil.copy("/usr/share/OVMF/OVMF_VARS_4M.fd", variables)
        firmware = [
            *("-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd"),
            *("-drive", f"if=pflash,format=raw,file={variables}"),
        ]
    kind = "qcow2" if cd.suffix == ".qcow2" else "raw"
    process = subprocess.Popen(
        [
            *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "1024"),
            *("-nodefaults", "-vga", "std", "-display", "none", "-no-reboot"),
            *("-serial", f"file:{folder}/serial", "-monitor", f"unix:{folder}/monitor,server,nowait"),
            *("-drive", f"if=none,id=cd,format={kind},readonly=on,file={cd}"),
            *("-device", "ide-cd,drive=cd,bus=ide.0,bootindex=1"),
            *firmware,
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield Machine(folder)
    finally:
        process.kill()
        process.wait()


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
