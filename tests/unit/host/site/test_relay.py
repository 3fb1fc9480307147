"""The relay is started again when it is not what winlab would start, and leaves no log."""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - a process in the relay's place
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from winlab.host import daemons
from winlab.host import relay_program as program
from winlab.host.site import relay


def test_the_relay_is_outdated_if_its_arguments_or_its_program_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = tmp_path / "ovsdb-server"
    shutil.copy("/bin/sleep", server)
    monkeypatch.setattr(program, "arguments", lambda: ("ovsdb-server", "1000"))
    monkeypatch.setattr(daemons, "relay_pid", lambda: 0)
    assert not relay._is_outdated()  # it does not run
    with subprocess.Popen([server, "1000", "1"]) as process, ExitStack() as ending:
        ending.callback(process.kill)
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # Linux sets it a little after the program begins
            time.sleep(0.01)
        monkeypatch.setattr(daemons, "relay_pid", lambda: process.pid)
        assert not relay._is_outdated()
        monkeypatch.setattr(program, "arguments", lambda: ("ovsdb-server", "1001"))
        assert relay._is_outdated()
        monkeypatch.setattr(program, "arguments", lambda: ("ovsdb-server", "1000"))
        server.unlink()
        assert relay._is_outdated()


def test_its_logs_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "LOG", tmp_path / "winlab-relay.log")
    for name in ("winlab-relay.log", "winlab-relay.log.1.gz", "ovn-northd.log"):
        (tmp_path / name).touch()
    relay.remove_log()
    assert [path.name for path in tmp_path.iterdir()] == ["ovn-northd.log"]
