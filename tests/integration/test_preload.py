"""The script that fills containerd's store, run by the system's own shell: what it starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess  # noqa: TID251 - ends the script as a killed winlab does
import time
from pathlib import Path

import pytest

from winlab.supply.artifacts import preload

LIMIT = 20  # seconds


def wait_for(path: Path) -> str:
    end = time.monotonic() + LIMIT
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    return path.read_text()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """In place of the other tests' fixture: this needs neither root nor a host that was set up."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_containerd_ends_with_the_script(tmp_path: Path, number: signal.Signals) -> None:
    """setpriv's --pdeathsig sends SIGTERM when winlab is killed."""
    daemon, ctr, work = tmp_path / "containerd", tmp_path / "ctr", tmp_path / "work"
    pid_file = tmp_path / "pid"
    daemon.write_text(f"#!/bin/sh\necho $$ >{pid_file}\nexec sleep 600\n")
    ctr.write_text("#!/bin/sh\nexit 1\n")  # it never answers
    for program in (daemon, ctr):
        program.chmod(0o755)
    words = ["sh", "-c", preload._SCRIPT, "sh", str(work), str(daemon), str(ctr)]
    # a shell in the background ignores SIGINT, and may not trap what was ignored at its start
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    ) as shell:
        pid = int(wait_for(pid_file))
        try:
            shell.send_signal(number)
            shell.wait(LIMIT)
            end = time.monotonic() + LIMIT
            while lives(pid) and time.monotonic() < end:
                time.sleep(0.05)
            assert not lives(pid)
        finally:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
