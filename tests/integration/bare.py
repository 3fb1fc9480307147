"""A bare machine under real firmware, with a CD and perhaps a disk: no libvirt, no network."""

from __future__ import annotations

import shutil
import socket
import subprocess  # noqa: TID251 - runs QEMU by hand
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = 900  # a bound for a machine that hangs, no expectation


class Machine:
    """A bare machine with a CD: no libvirt, no network, no disk."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.serial = folder / "serial"
        self._monitor = folder / "monitor"

    def text(self) -> str:
        return self.serial.read_text(errors="replace") if self.serial.exists() else ""

    def wait_for(self, *words: str, key: str = "", at: str = "") -> str:
        """Wait until one of the words is on the serial port; return it.

        :param key: pressed each time that *at* is there.
        """
        end, pressed = time.monotonic() + LIMIT, 0
        while time.monotonic() < end:
            said = self.text()
            for word in words:
                if word in said:
                    return word
            if key and said.count(at) > pressed:
                pressed += 1
                self.key(key)
            assert self.process.poll() is None, f"QEMU ended with {self.process.returncode}:\n{self.text()[-2000:]}"
            time.sleep(0.3)
        raise AssertionError(f"none of {words} in:\n{self.text()[-2000:]}")

    def key(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._monitor))
            monitor.recv(1024)
            monitor.sendall(f"sendkey {name}\n".encode())
            time.sleep(0.3)


@contextmanager
def machine(folder: Path, cd: Path, *, uefi: bool, bus: str = "") -> Iterator[Machine]:
    """The machine, running; with a *bus* it has an empty disk on it, which it starts from once that can be started."""
    disk: list[str] = []
    if bus:
        image = folder / "disk.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "8G"], check=True)
        device = {"virtio-blk": "virtio-blk-pci", "virtio-scsi": "scsi-hd", "sata": "ide-hd,bus=ide.1"}[bus]
        disk = [
            *(["-device", "virtio-scsi-pci"] if bus == "virtio-scsi" else []),
            *("-drive", f"if=none,id=disk,format=qcow2,cache=unsafe,file={image}"),
            *("-device", f"{device},drive=disk,bootindex=1"),
            *("-nic", f"user,restrict=on,model={'e1000e' if bus == 'sata' else 'virtio-net-pci'}"),
        ]
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
            # It may restart: the stand-in does where an emulated clock was measured wrongly.
            # One CPU: with two, emulated Linux dies now and then where one rewrites code that the other runs ("Oops:
            # int3"). winlab resets such a guest; a bare machine stays as it is.
            *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "1536"),
            *("-nodefaults", "-vga", "std", "-display", "none"),
            *("-serial", f"file:{folder}/serial", "-monitor", f"unix:{folder}/monitor,server,nowait"),
            *("-drive", f"if=none,id=cd,format={kind},readonly=on,file={cd}"),
            *("-device", "ide-cd,drive=cd,bus=ide.0,bootindex=2"),
            *disk,
            *firmware,
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield Machine(folder, process)
    finally:
        process.kill()
        process.wait()
