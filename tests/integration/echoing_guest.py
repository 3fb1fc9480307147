"""A tiny guest in a real QEMU: what is typed on its keyboard or COM1 appears on its screen and on COM1."""

from __future__ import annotations

import socket
import subprocess  # noqa: TID251 - runs QEMU by hand
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from winlab.operations.reach import Screen

LIMIT = 120  # seconds for a QEMU that hangs
PASSWORD = "s3cret-1"
# 16 bits, at 0x7C00: wait for an interrupt; a key (int 16h) or a byte of COM1 goes to the screen (int 10h) and to COM1
PROGRAM = bytes.fromhex(
    "fb f4 b4 01 cd 16 74 07 b4 00 cd 16 e8 10 00 ba fd 03 ec a8 01 74 e9 b2 f8 ec e8 02 00 eb e1"
    " b4 0e cd 10 ba f8 03 ee c3"
)


@dataclass
class Guest:
    """``screen`` is where QEMU's VNC server listens, ``serial`` is connected to COM1, ``heard`` what COM1 printed."""

    screen: Screen
    serial: socket.socket
    folder: Path
    heard: bytearray = field(default_factory=bytearray)
    _monitor: threading.Lock = field(default_factory=threading.Lock)

    def wait_for(self, text: bytes) -> None:
        """Wait until COM1 has printed a text."""
        end = time.monotonic() + LIMIT
        while text not in self.heard:
            assert time.monotonic() < end, bytes(self.heard)
            self.listen()

    def listen(self) -> bytes:
        """What COM1 has printed since the last call."""
        try:
            news = self.serial.recv(4096)
        except TimeoutError:
            return b""
        self.heard += news
        return news

    def picture(self) -> bytes:
        """The screen as PNG, by QEMU's monitor, which serves one connection at a time."""
        with self._monitor:
            return self._picture()

    def _picture(self) -> bytes:
        path = self.folder / "screen.png"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.folder / "monitor"))
            monitor.settimeout(LIMIT)
            monitor.recv(1024)
            monitor.sendall(f"screendump {path} -f png\n".encode())
            end = time.monotonic() + LIMIT
            while not _is_whole(path):
                assert time.monotonic() < end
                time.sleep(0.05)
        return path.read_bytes()


def _is_whole(path: Path) -> bool:
    try:
        Image.open(path).load()
    except (OSError, SyntaxError):
        return False
    return True


@contextmanager
def guest(folder: Path) -> Iterator[Guest]:
    """The guest, once it runs."""
    disk, secret = folder / "disk", folder / "secret"
    disk.write_bytes((PROGRAM.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))
    secret.write_text(PASSWORD)
    port = _free_port()
    words: list[Any] = [
        "qemu-system-x86_64", "-accel", "tcg", "-m", "16", "-nodefaults", "-vga", "std", "-display", "none",
        "-drive", f"file={disk},format=raw,if=ide", "-object", f"secret,id=vnc,file={secret}",
        "-vnc", f"127.0.0.1:{port - 5900},password-secret=vnc",
        "-serial", f"unix:{folder / 'com1'},server=on,wait=off",
        "-monitor", f"unix:{folder / 'monitor'},server=on,wait=off",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + LIMIT
        while not all((folder / one).exists() for one in ("com1", "monitor")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as serial:
            serial.settimeout(0.1)
            serial.connect(str(folder / "com1"))
            made = Guest(Screen("127.0.0.1", port, PASSWORD), serial, folder)
            while b"!" not in made.heard:  # until it answers: the firmware reads nothing
                assert time.monotonic() < end
                serial.sendall(b"!")
                made.listen()
            yield made
    finally:
        process.terminate()
        process.wait(LIMIT)


def _free_port() -> int:
    """A free port that QEMU can name: it counts from 5900."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            if (port := int(probe.getsockname()[1])) > 5900:
                return port
