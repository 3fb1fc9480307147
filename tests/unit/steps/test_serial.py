"""The serial port's log is read piece by piece, with the same result as if it were read whole."""

from __future__ import annotations

from typing import Any, cast

import pytest
import runs

from winlab.steps import serial
from winlab.steps.serial import SerialLog

OVMF = b'BdsDxe: starting Boot0001 "UEFI QEMU DVD-ROM QM00001 " from PciRoot(0x0)/Pci(0x1F,0x2)\r\n'
SAID = (
    b"SeaBIOS\r\nwinlab: phase=windowsPE\r\nbootmgr\r\nwinlab: phase=specialize\r\nwinlab: error=the first\r\n"
    b"winlab: error=another\r\n"
)


class Pool:
    """A pool with one log. ``asked`` has how much was read at each look."""

    def __init__(self) -> None:
        self.log = b""
        self.asked: list[int] = []

    def exists(self, name: str) -> bool:
        return True

    def download(self, name: str, offset: int = 0, most: int = 1 << 20) -> bytes:
        piece = self.log[offset : offset + most]
        self.asked.append(len(piece))
        return piece


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> tuple[Pool, SerialLog, runs.Clock]:
    clock, pool = runs.clock(monkeypatch, serial), Pool()
    return pool, SerialLog(cast(Any, pool), "lab.node-1.serial.log"), clock


Port = tuple[Pool, SerialLog, runs.Clock]


def hear(port: Port, *pieces: bytes) -> SerialLog:
    pool, log, _ = port
    for piece in pieces:
        pool.log += piece
        log.read()
    return log


@pytest.mark.parametrize("cut", range(1, len(SAID), 7))
def test_a_log_read_in_pieces_gives_the_same_result(port: Port, cut: int) -> None:
    log = hear(port, SAID[:cut], SAID[cut:])
    assert (log.phase, log.failure, log.size) == ("specialize", "the first", len(SAID))


def test_only_new_text_is_read(port: Port) -> None:
    hear(port, b"a" * 100_000, b"b" * 10, b"")
    assert port[0].asked == [100_000, 10, 0]


def test_a_half_written_phase_does_not_count_yet(port: Port) -> None:
    assert hear(port, b"winlab: phase=spec").phase == ""
    assert hear(port, b"ialize\r\n").phase == "specialize"


def test_a_new_phase_forgives_an_earlier_failure(port: Port) -> None:
    assert hear(port, b"winlab: error=no\r\n").failure == "no"
    assert hear(port, b"winlab: phase=ready\r\n").failure == ""


def test_the_firmware_that_starts_a_cd_is_seen(port: Port) -> None:
    assert not hear(port, b"BdsDxe: loading").starts_cd
    assert hear(port, OVMF[:30], OVMF[30:]).starts_cd


@pytest.mark.parametrize(
    ("after", "panic"), [(b"", "Fatal exception"), (b"\r\n", "Fatal exception"), (b"\r\nBdsDxe: loading", None)]
)
def test_a_panic_counts_as_long_as_it_is_the_last_output(port: Port, after: bytes, panic: str | None) -> None:
    end = (b"\r\n---[ end Kernel panic - not ", b"syncing: Fatal exception ]---")
    log = hear(port, b"[ 1.0] Oops: int3\r\n", b"x" * 3000, *end, after)
    assert log.panic == panic
    assert log.oops == "Oops: int3"


def test_a_rotated_log_is_read_from_its_beginning(port: Port) -> None:
    """virtlogd continues with another file when one is full."""
    pool, log, clock = port
    hear(port, b"winlab: phase=specialize\r\n" * 10)
    pool.log = b"winlab: phase=ready\r\n"
    log.read()
    assert log.phase == "specialize"
    clock.sleep(serial.AGAIN + 1)
    log.read()
    assert (log.phase, log.size) == ("ready", len(pool.log))
    pool.log += b"winlab: error=no\r\n"
    log.read()
    assert log.failure == "no"


def test_silence_is_not_progress(port: Port) -> None:
    log = hear(port, SAID)
    port[2].sleep(serial.AGAIN + 1)
    log.read()
    assert log.size == len(SAID)


def test_reports_of_a_guest_are_limited(port: Port) -> None:
    log = hear(port, b"winlab: phase=" + b"p" * 100_000 + b"\r\nwinlab: error=" + b"e" * 100_000 + b"\r\n")
    assert (len(log.phase), len(log.failure)) == (serial.PHASE, serial.LINE)


def test_warnings_a_beacon_and_a_dump(port: Port) -> None:
    log = hear(
        port, b"winlab: warning=ssh: no\r\nwinlab: beacon 1 WinRM=Stopped\r\nwinlab: beac", b"on 2 WinRM=Running\r\n"
    )
    assert (log.warnings, log.beacon, log.dumping) == (["ssh: no"], "WinRM=Running", False)
    event = b"boot=3 event=41 2026-11-21T10:02:00Z Kernel-Power: It restarted."
    assert hear(port, b"winlab: beacon 3 free=9MB " + event + b"\r\n").beacon == f"free=9MB {event.decode()}"
    assert hear(port, b"winlab: error=bootstrap: x\r\nwinlab: BEGIN dump\r\nwinlab: dump of disks:\r\n").dumping
    assert not hear(port, b"winlab: END dump\r\n").dumping


START = b'\x1b[2JBdsDxe: loading Boot0003 "Windows Boot Manager" from HD(1)\r\n' + (
    b'BdsDxe: starting Boot0003 "Windows Boot Manager" from HD(1)\r\n'
)
LOOP = OVMF + b"winlab: phase=windowsPE\r\n" + START + (b"winlab: phase=specialize\r\nhm\r\n" + START) * 3


@pytest.mark.parametrize("cut", range(1, len(LOOP), 5))
def test_starts_are_counted_in_each_phase(port: Port, cut: int) -> None:
    assert hear(port, LOOP[:cut], LOOP[cut:]).starts == 4


def test_firmware_that_tries_each_of_its_options_is_one_start(port: Port) -> None:
    assert hear(port, OVMF + START).starts == 1
    assert hear(port, b"winlab: phase=windowsPE\r\n").starts == 1
    assert hear(port, START).starts == 2


def test_starts_of_an_earlier_wait_do_not_count(port: Port) -> None:
    log = hear(port, LOOP)
    log.forget_starts()
    assert log.starts == 1
    assert hear(port, START).starts == 2
