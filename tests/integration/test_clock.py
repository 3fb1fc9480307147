"""The image's first program starts a guest again whose clock Linux has measured wrongly."""

from __future__ import annotations

import subprocess  # noqa: TID251 - runs the image's script
from pathlib import Path

import pytest

from winlab import data

SCRIPT = data.folder("images") / "debian/root/etc/initramfs-tools/scripts/init-top/winlab-clock"
FINE = """[    0.064000] tsc: Unable to calibrate against PIT
[    0.064000] tsc: using PMTIMER reference calibration
[    0.064000] tsc: Detected 2300.041 MHz processor
"""
# As Linux 6.12 wrote it in a guest beside four others on two cores
WRONG = """[    0.056000] tsc: PIT calibration deviates from PMTIMER: 650566 2300089
[    0.056000] tsc: Using PIT calibration value
[    0.056000] tsc: Detected 650.566 MHz processor
"""


@pytest.mark.parametrize(("log", "restarts"), [(FINE, False), (WRONG, True)])
def test_a_wrong_clock_means_another_start(tmp_path: Path, log: str, restarts: bool) -> None:
    (tmp_path / "log").write_text(log)
    for name, body in (("dmesg", f"cat {tmp_path}/log"), ("reboot", f"touch {tmp_path}/restarted")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    text = SCRIPT.read_text().replace("/dev/console", str(tmp_path / "console"))
    done = subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, check=False)
    assert done.returncode == 0
    assert (tmp_path / "restarted").exists() == restarts
    assert (tmp_path / "console").exists() == restarts
