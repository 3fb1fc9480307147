"""powershell.exe: the engine, if the media have one (engine.py). Otherwise a few exact scripts are simulated, and all
others are refused."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable

from winlab_standin.guest import cmdline
from winlab_standin.guest.shell import Shell, Streams


def powershell(shell: Shell, rest: str, streams: Streams) -> int:
    """Run the engine if there is one; without it, simulate a few exact scripts, and refuse all others."""
    from winlab_standin.guest import engine, scripts
    from winlab_standin.guest.machine import FileError, ScriptError

    if engine.program() is not None:
        return engine.powershell(shell, rest, streams)
    try:
        shown = scripts.file_of(cmdline.split(rest))
        if shown is not None:
            scripts.run_file(shell.world, shell.path(shown), shown, streams.read, streams.out)
            return 0
    except FileError as error:
        streams.err(f"{error}\r\n")
        return scripts.NO_FILE
    except ScriptError as error:
        streams.err(f"{error}\r\n")
        return 1
    script = script_of(rest)
    for known, play in _SCRIPTS:
        match = re.fullmatch(known, script, re.IGNORECASE)
        if match:
            return play(shell, match, streams)
    streams.err(f"powershell.exe : not available in this stand-in\r\n    + {script[:200]}\r\n")
    return 1


def script_of(rest: str) -> str:
    """The script in PowerShell's own arguments: after ``-Command``, or ``-EncodedCommand`` in base64 of UTF-16LE."""
    words = cmdline.split(rest)
    at = 0
    while at < len(words) and words[at].startswith("-"):
        flag = words[at].lower()
        if flag in ("-encodedcommand", "-enc", "-e", "-ec"):
            try:
                return " ".join(base64.b64decode(words[at + 1]).decode("utf-16-le").split())
            except (IndexError, binascii.Error, UnicodeDecodeError):
                return ""
        if flag in ("-command", "-c"):
            return " ".join(" ".join(words[at + 1 :]).split())
        at += 2 if flag in ("-executionpolicy", "-ep", "-inputformat", "-outputformat") else 1
    return " ".join(" ".join(words[at:]).split())


def _content(shell: Shell, match: re.Match[str], streams: Streams) -> int:
    return shell.commands.builtin["type"](shell, match["path"], streams)


def _say(text: str) -> Callable[[Shell, re.Match[str], Streams], int]:
    def play(shell: Shell, match: re.Match[str], streams: Streams) -> int:
        del match
        said = text
        told = {"@NAME@": shell.world.name(), "@BUILD@": shell.world.windows.build}
        for mark, value in told.items():
            said = said.replace(mark, value)
        streams.out(f"{said}\r\n")
        return 0

    return play


def _power(action: str) -> Callable[[Shell, re.Match[str], Streams], int]:
    def play(shell: Shell, match: re.Match[str], streams: Streams) -> int:
        del match, streams
        shell.world.power(action, 1)
        return 0

    return play


def _clock(shell: Shell, match: re.Match[str], streams: Streams) -> int:
    del match
    streams.out(f"{round(shell.world.clock() * 1000)}\r\n")
    return 0


def _step_clock(shell: Shell, match: re.Match[str], streams: Streams) -> int:
    """Set the clock as Set-Date does, which prints the new time."""
    shell.world.set_clock(shell.world.clock() + int(match["by"]) / 1000)
    streams.out(time.strftime("\r\n%A, %B %d, %Y %H:%M:%S\r\n\r\n", time.gmtime(shell.world.clock())))
    return 0


def _bootstrap(shell: Shell, match: re.Match[str], streams: Streams) -> int:
    """Run winlab\\bootstrap.ps1 on every drive that has one."""
    del match
    from winlab_standin.guest import bootstrap

    for place in shell.world.drives.letters.values():
        script = place / "winlab" / "bootstrap.ps1"
        if script.is_file():
            try:
                bootstrap.play(script.parent, shell.world)
            except bootstrap.RefusedError as error:
                streams.err(f"{error}\r\n")
                return 1
    return 0


_BOOTSTRAP = (
    "Get-PSDrive -PSProvider FileSystem | ForEach-Object { $p = Join-Path $_.Root 'winlab\\bootstrap.ps1'; "
    "if (Test-Path $p) { & $p } }"
)
_SCRIPTS: tuple[tuple[str, Callable[[Shell, re.Match[str], Streams], int]], ...] = (
    (r"\$PSVersionTable\.PSVersion\.ToString\(\)", _say("5.1.@BUILD@")),
    (re.escape(_BOOTSTRAP), _bootstrap),
    (r"\$env:COMPUTERNAME", _say("@NAME@")),
    (r"hostname(\.exe)?", _say("@NAME@")),
    (r"Get-Content (-Raw )?(-Path )?'?(?P<path>[A-Z]:\\[^'\s]+)'?", _content),
    (r"\[DateTimeOffset\]::UtcNow\.ToUnixTimeMilliseconds\(\)", _clock),
    (r"Set-Date -Adjust \(\[TimeSpan\]::FromMilliseconds\((?P<by>-?\d+)\)\)", _step_clock),
    (r"Restart-Computer -Force", _power("reboot")),
    (r"Stop-Computer -Force", _power("poweroff")),
)
