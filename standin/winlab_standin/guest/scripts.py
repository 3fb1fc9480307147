"""winlab's PowerShell scripts for Windows workers: which are simulated here, and how they fail.

A script runs on Windows by ``powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File
D:\\scripts\\X.ps1`` with its settings as JSON on the standard input; its result is a line of JSON. Here Python and Wine
*simulate* the same call (``players.py``, ``clusterplayers.py``). They do so only if the file is on the payload CD, and
is byte for byte that of the winlab that made these media. Any other script is refused with an exit code other than 0.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from winlab_standin.guest import devices
from winlab_standin.guest.base import StandinError
from winlab_standin.guest.machine import FileError, Machine, Player, ScriptError, Settings
from winlab_standin.guest.place import STATE
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World

LABEL = "WINLAB_K8S"
CHANGING = "changing.lock"  # in STATE; replaces the mutex of common.ps1
LOOKS = ("logs.ps1", "probe.ps1", "sealed.ps1", "status.ps1")  # these change nothing and don't wait: Test-Changing
TURN = 5.0  # seconds between two reports of a script that waits for another one
COMMON = "common.ps1"  # which all of them load
KNOWN = Path("/usr/lib/standin/known.json")
NO_FILE = -196608  # powershell.exe's exit code if the file of -File is missing
# powershell.exe's parameters that change nothing here, and how many words each takes
PARAMETERS = {"-noprofile": 0, "-noninteractive": 0, "-nologo": 0, "-executionpolicy": 1, "-ep": 1}
UNKNOWN = "this is not the script that these stand-in media know; build the media again"


def file_of(words: list[str]) -> str | None:
    """The script in powershell.exe's arguments; None if none is named with ``-File``.

    :raises ScriptError: there are arguments after it, or parameters before it that the stand-in does not know.
    """
    if not any(word.lower() in ("-file", "-f") for word in words):
        return None
    at = 0
    while words[at].lower() not in ("-file", "-f"):
        if words[at].lower() not in PARAMETERS:
            raise ScriptError(f"powershell.exe : the stand-in knows no parameter '{words[at]}' with -File")
        at += 1 + PARAMETERS[words[at].lower()]
        if at >= len(words):
            raise ScriptError("powershell.exe : Missing argument for parameter ExecutionPolicy.")
    if len(words) != at + 2:
        raise ScriptError("powershell.exe : the stand-in takes one file, and no arguments for it")
    return words[at + 1]


def recognize(path: Path | None, shown: str, known: dict[str, str], labels: dict[str, str]) -> str:
    """The name of the script at *path*, if it may be simulated. *known*: digests of winlab's scripts by their names;
    *labels*: names of the volumes by drive letter.

    :raises FileError: there is no such file.
    :raises ScriptError: it is not one of winlab's scripts, or not on the payload CD.
    """
    if path is None or not path.is_file() or path.suffix.lower() != ".ps1":
        raise FileError(
            f"The argument '{shown}' to the -File parameter does not exist. Provide the path to an existing '.ps1' "
            "file as an argument to the -File parameter."
        )
    name = path.name.lower()
    for needed in (path, path.with_name(COMMON)):
        if not needed.is_file() or known.get(needed.name.lower()) != hashlib.sha256(needed.read_bytes()).hexdigest():
            raise ScriptError(f"{needed.name} : {UNKNOWN}")
    if labels.get(shown[:1].upper()) != LABEL or path.parent.name.lower() != "scripts":
        raise ScriptError(f"{shown} : this script runs from the CD '{LABEL}', and this is another volume")
    return name


def settings(text: str) -> Settings:
    """The settings on the standard input; empty input means no settings.

    :raises ScriptError: they are not a JSON object.
    """
    if not text.strip():
        return {}
    try:
        given = json.loads(text.lstrip("\ufeff"))
    except ValueError as error:
        raise ScriptError(f"ConvertFrom-Json : Invalid JSON primitive: {error}") from error
    if not isinstance(given, dict):
        raise ScriptError("ConvertFrom-Json : the settings are not an object")
    return given


def players() -> dict[str, Player]:
    """The functions that simulate scripts, by the scripts' names."""
    from winlab_standin.guest import (
        clusterplayers,
        configplayers,
        faultplayers,
        loginplayers,
        memberplayers,
        players,
        sysprep,
    )

    others = {**configplayers.PLAYERS, **faultplayers.PLAYERS, **loginplayers.PLAYERS, **sysprep.PLAYERS}
    return {**players.PLAYERS, **clusterplayers.PLAYERS, **memberplayers.PLAYERS, **others}


@contextmanager
def _alone(machine: Machine) -> Iterator[None]:
    """Wait until no other script changes this machine, and lock others out, as Enter-Change does.

    Windows does not end a script whose caller disappeared: it keeps running while the next winlab connects.
    """
    with (STATE / CHANGING).open("w") as lock:
        told = 0.0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if told + TURN <= time.monotonic():
                    told = time.monotonic()
                    machine.tell("winlab: waiting for a script that an earlier winlab started here")
                time.sleep(0.2)
        yield


def play(name: str, machine: Machine, given: Settings) -> dict[str, Any]:
    """Do what the script *name* does; returns its result. A script that changes the machine waits for its turn.

    :raises ScriptError: as the script throws it.
    """
    try:
        player = players().get(name)
        if player is None:
            raise ScriptError(f"{name} : the stand-in does not play this script")
        with nullcontext() if name in LOOKS else _alone(machine):
            return player(machine, given)
    except (OSError, StandinError) as error:
        raise ScriptError(" ".join(str(error).split())) from error


def machine(world: World, letter: str, tell: Callable[[str], None]) -> Machine:
    """This machine, for a script on the drive *letter*."""
    root = world.drives.letters["C"]
    config = root / "Windows/System32/config"
    services = Manager(config / "standin-services.json")
    return Machine(root, world.drives.letters[letter], config, services, world, tell, letter)


def known_scripts() -> dict[str, str]:
    """The digests of winlab's scripts, which the media's build recorded."""
    found: dict[str, str] = json.loads(KNOWN.read_text())["scripts"] if KNOWN.is_file() else {}
    return found


def run_file(world: World, path: Path | None, shown: str, read: Callable[[], str], out: Callable[[str], None]) -> None:
    """What ``powershell.exe -File`` does with the script *shown*, whose file is *path*.

    :raises ScriptError: see above.
    """
    name = recognize(path, shown, known_scripts(), devices.labels())
    made = machine(world, shown[0].upper(), lambda line: out(f"{line}\r\n"))
    # only these scripts read their input; others must not wait for input that no one sends
    reads = path is not None and "Read-Settings @($input)" in path.read_text(encoding="utf-8")
    result = play(name, made, settings(read()) if reads else {})
    out(json.dumps(result) + "\r\n")
