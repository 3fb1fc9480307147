"""Commands about logins: the console's encoding, and WinRM stopped and started manually."""

from __future__ import annotations

import time
from pathlib import Path

from winlab_standin.guest import syscommands
from winlab_standin.guest.place import STATE
from winlab_standin.guest.shell import Command, Shell, Streams

UTF_8 = "65001"
FOR_GOOD = 10.0**9  # seconds: until someone starts it, or the system restarts
WAIT = 60.0  # seconds for the service to start
WINRM = "The Windows Remote Management (WS-Management) service"


def chcp(shell: Shell, rest: str, streams: Streams) -> int:
    """``chcp``, ``chcp 65001``: everything that the stand-in prints is UTF-8."""
    del shell
    if rest.strip() not in ("", UTF_8):
        streams.err("Invalid code page\r\n")
        return 1
    streams.out(f"Active code page: {UTF_8}\r\n")
    return 0


def net(shell: Shell, rest: str, streams: Streams) -> int:
    """``net stop winrm``, ``net start winrm``; anything else as :func:`syscommands.net` does it."""
    words = rest.lower().split()
    runs = shell.world.services().get("WinRM", False)
    if words == ["stop", "winrm"]:
        return _stop(streams, runs=runs)
    if words == ["start", "winrm"] and not runs:
        return _start(streams)
    return syscommands.net(shell, rest, streams)


def _stop(streams: Streams, *, runs: bool) -> int:
    if not runs:
        streams.err(f"{WINRM} is not started.\r\n\r\n")
        return 2
    _note("winrm").unlink(missing_ok=True)
    _note("drop").write_text(f"{FOR_GOOD}\n")  # services.py cuts it off
    streams.out(f"{WINRM} is stopping.\r\n{WINRM} was stopped successfully.\r\n\r\n")
    return 0


def _start(streams: Streams) -> int:
    request, end = _note("reload.winrm"), time.monotonic() + WAIT
    request.write_text("")
    while request.exists() and time.monotonic() < end:
        time.sleep(0.1)
    if request.exists() or _note("failed.winrm").exists():
        _note("failed.winrm").unlink(missing_ok=True)
        streams.err(f"{WINRM} could not be started.\r\n\r\n")
        return 2
    streams.out(f"{WINRM} is starting.\r\n{WINRM} was started successfully.\r\n\r\n")
    return 0


def _note(name: str) -> Path:
    return STATE / name


PROGRAMS: dict[str, Command] = {"chcp": chcp, "net": net}
