"""powershell.exe: winlab's PowerShell engine, if the media have one. It runs every script and command unchanged.

The media have it if WINLAB_POWERSHELL named one when they were made (builder/engine.py). What Windows has and the
engine lacks is faked in ``doubles/``, with the data that bridge.py provides. Without an engine, Python simulates
winlab's own scripts (scripts.py).
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from winlab_standin.guest import bridge, cmdline, devices, scripts
from winlab_standin.guest.base import converse
from winlab_standin.guest.base import run as run_program
from winlab_standin.guest.bridge import Bridge, Tasks
from winlab_standin.guest.node import AT_START, Node
from winlab_standin.guest.nodestate import Task
from winlab_standin.guest.place import STATE, C
from winlab_standin.guest.report import write_port
from winlab_standin.guest.resident import Resident
from winlab_standin.guest.shell import Commands, Shell, Streams
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World

IMAGE = C / "Windows/System32/standin/engine.sqfs"
FOLDER = Path("/run/engine")
DOUBLES = Path(__file__).parent / "doubles"
_COUNT = itertools.count(1)


def mount() -> bool:
    """Mount the engine; returns whether the media had one.

    :raises CommandError: it can't be mounted.
    """
    if not IMAGE.is_file():
        return False
    FOLDER.mkdir(exist_ok=True)
    run_program(["mount", "-t", "squashfs", "-o", "loop,ro", IMAGE, FOLDER])
    return True


def program() -> Path | None:
    """The engine; None if there is none."""
    path = FOLDER / "winlab-ps"
    return path if path.is_file() else None


def resident() -> Resident:
    """The resident engine; it may not run yet."""
    return Resident(STATE / "resident")


def _unheard(text: str) -> None:
    del text


def _run_task(commands: Commands, row: Task) -> None:
    """Do what a scheduled task does; no one reads its output."""
    if row["execute"].lower() in ("powershell", "powershell.exe"):
        # it may run forever
        shell, account = Shell(World.real(), commands, alone=True), row["who"].partition(" ")[0]
        powershell(shell, row["arguments"], Streams(_unheard, _unheard), account)


TASKS = Tasks()


def start_tasks(world: World, commands: Commands) -> None:
    """Run the tasks that are triggered by a start of the system."""
    config = C / "Windows/System32/config"
    node = Node(world, Manager(config / "standin-services.json"), config)
    for name, row in node.kept()["tasks"].items():
        if row["trigger"] == AT_START:
            TASKS.start(name, partial(_run_task, commands, row))


def words_of(rest: str, folder: Path, real: Callable[[str], Path | None]) -> list[str]:
    """powershell.exe's arguments for the engine, with the path at which the engine finds the file of ``-File``.

    :raises FileNotFoundError: there is no such file; the text is powershell.exe's.
    """
    words = cmdline.split(rest)
    for at, word in enumerate(words[:-1]):
        if word.lower() in ("-command", "-c", "-encodedcommand", "-enc", "-e", "-ec"):
            break
        if word.lower() in ("-file", "-f"):
            shown = words[at + 1]
            path = real(shown)
            if path is None or not path.is_file() or path.suffix.lower() != ".ps1":
                raise FileNotFoundError(
                    f"The argument '{shown}' to the -File parameter does not exist. Provide the path to an existing "
                    "'.ps1' file as an argument to the -File parameter."
                )
            full = shown.replace("/", "\\")
            inside = full[2:].lstrip("\\").replace("\\", "/") if full[1:2] == ":" else ""
            there = folder / full[0].lower() / inside if inside else path
            words[at + 1] = str(there if there.is_file() else path)
            break
    return words


def powershell(shell: Shell, rest: str, streams: Streams, account: str = "") -> int:
    """What ``powershell.exe`` does with the arguments *rest*.

    :param account: the account that it runs in; empty: the Administrator's, in a session.
    """
    engine = program()
    assert engine is not None
    folder = STATE / f"node.{os.getpid()}.{next(_COUNT)}"
    letter = next((name for name, label in devices.labels().items() if label == scripts.LABEL), "C")
    machine = scripts.machine(shell.world, letter, _unheard)
    made = Bridge(machine, shell, folder, TASKS, partial(_run_task, shell.commands))
    made.begin()
    try:
        try:
            words = words_of(rest, folder, shell.path)
        except FileNotFoundError as error:
            streams.err(f"{error}\r\n")
            return scripts.NO_FILE
        server = bridge.serve(made, folder / "bridge")
        try:
            line: list[str | Path] = [engine, *words]
            conversation = (line, streams.read, streams.out, streams.err, shell.check)
            env = _environment(folder, shell) | {"WINLAB_ACCOUNT": account}
            code = None if shell.alone else resident().converse(*conversation, env=env)
            if code is None:
                code = converse(*conversation, env=env)
        finally:
            server.shutdown()
            server.server_close()
        if code < 0:
            write_port(f"setup: bug: the PowerShell engine was ended by signal {-code}\r\n")
        return code
    finally:
        made.end()
        for _ in range(2):  # programs that the script has started may still be writing there
            shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path, shell: Shell) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "HOME": "/root",
        "NO_COLOR": "1",
        "COMPUTERNAME": shell.world.name().upper(),
        "WINLAB_PS_PRELUDE": str(DOUBLES / "standin.ps1"),
        "WINLAB_MACHINE": str(folder),
        "WINLAB_BRIDGE": str(folder / "bridge"),
    }
