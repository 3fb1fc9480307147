"""What a script in the PowerShell engine asks of Windows: ``doubles/standin.ps1`` asks on a socket, this answers.

Each run of the engine has its own bridge, with a folder in which drives are links and the registry is a file. Before
each answer, the bridge applies what the script has set there, so that everything happens in the script's order.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from winlab_standin.guest import (
    bootstrap,
    clusterplayers,
    faultplayers,
    loginplayers,
    nativecommands,
    players,
    routes,
    sysprep,
    workerfiles,
)
from winlab_standin.guest.base import StandinError
from winlab_standin.guest.hives import MEMORY, SERVICES, SETUP, Hives, Keys
from winlab_standin.guest.machine import Machine, ScriptError
from winlab_standin.guest.node import COMPLETE, RESEALED, Node, free
from winlab_standin.guest.nodestate import State, Task
from winlab_standin.guest.place import STATE
from winlab_standin.guest.report import bug
from winlab_standin.guest.shell import Shell, Streams

Answer = Callable[[dict[str, Any]], None]
VOLATILE = STATE / "volatile.json"
_PORT = threading.Lock()  # the serial port: one program at a time has it open


def native_line(words: list[str]) -> str:
    """The command line that Windows PowerShell makes of arguments: quotes around those with spaces, and none of their
    own quotes escaped. Source: about_Parsing, "Passing arguments that contain quote characters", of 7.3."""
    return " ".join(f'"{word}"' if re.search(r"\s", word) or not word else word for word in words)


class Bridge:
    """The answers. *machine* is what scripts work on; *do* does what a scheduled task does."""

    def __init__(self, machine: Machine, shell: Shell, folder: Path, tasks: Tasks, do: Callable[[Task], None]) -> None:
        self.machine = machine
        self.shell = shell
        self.folder = folder
        self.tasks = tasks
        self.do = do
        self.node = Node(machine.world, machine.services, machine.config, bootstrap.restart, clusterplayers.try_proxy)
        self.hives = Hives(folder / "registry.json", machine.world.registry, VOLATILE, self._system_keys)
        self.last: State | None = None
        self.has_port = False
        self.lock = threading.Lock()
        self.calls: dict[str, Callable[[dict[str, Any]], Any]] = {
            "state": self._state,
            "change": self._change,
            "start task": self._start_task,
            "task runs": lambda asked: self.tasks.runs(str(asked["name"])),
            "create process": self._create,
            "import certificate": self._certificate,
            "listen": self._listen,
            "set password": lambda asked: loginplayers.set_password(self.machine, str(asked["password"])),
            "set clock": lambda asked: self.machine.world.set_clock(float(asked["seconds"])),
            "free": lambda asked: free(self._place(str(asked["name"]))),
            "digest": lambda asked: workerfiles.digest(Path(asked["path"])),
            "power": lambda asked: self.machine.world.power(str(asked["action"]), 1.0),
            "programs": self._programs,
            "open port": self._open_port,
            "write port": lambda asked: self.machine.world.serial(str(asked["text"]).replace("\n", "\r\n")),
            "close port": self._close_port,
        }

    def begin(self) -> None:
        """Fill the folder."""
        self.folder.mkdir(parents=True)
        for letter, place in self.machine.world.drives.letters.items():
            (self.folder / letter.lower()).symlink_to(place)
        self.hives.write()
        self._write_routes()

    def end(self) -> None:
        """Apply what the script has set since the last request."""
        self._sync()
        self.close_port()
        faultplayers.settle_fill(self.machine)
        self.machine.world.settle()

    def answer(self, asked: dict[str, Any], tell: Answer) -> None:
        """Answer one request."""
        try:
            self._sync()
            value = self._run(asked, tell) if asked["call"] == "run" else self.calls[asked["call"]](asked)
            self.hives.write()  # first: the script, once it has the answer, sets values in the same file
            tell({"value": value})
        except (OSError, StandinError, ScriptError, bootstrap.RefusedError) as error:
            self.hives.write()
            tell({"error": " ".join(str(error).split())})
        except Exception as error:  # in a thread, it would be lost otherwise
            bug()
            tell({"error": f"a bug of the stand-in: {type(error).__name__}: {error}"})

    def _sync(self) -> None:
        with self.lock:
            for key, values in self.hives.read().items():
                name = key.removeprefix(f"{SERVICES}\\")
                if "ImagePath" in values and name in self.machine.services.units():
                    self.node.recommand(name, str(values["ImagePath"]))

    def _system_keys(self) -> Keys:
        keys: Keys = {
            rf"{SERVICES}\{name}": {"ImagePath": unit.command} for name, unit in self.machine.services.units().items()
        }
        number = self.machine.config / players.BOOTS
        sealed = self.node.phase() == sysprep.GENERALIZED
        return keys | {
            MEMORY: {"BootId": int(number.read_text()) if number.is_file() else 1},
            SETUP: {"ImageState": RESEALED if sealed else COMPLETE},
        }

    def _state(self, asked: dict[str, Any]) -> State:
        del asked
        self.last = self.node.state()
        return self.last

    def _change(self, asked: dict[str, Any]) -> None:
        keys: Keys = json.loads(self.hives.path.read_text(encoding="utf-8-sig"))

        def command(name: str) -> str:
            return str(keys.get(rf"{SERVICES}\{name}", {}).get("ImagePath", ""))

        before = self.last or self.node.state()
        self.node.change(before, asked["state"], command)
        self.last = self.node.state()

    def _run(self, asked: dict[str, Any], tell: Answer) -> int:
        """Run a program; its exit code."""
        program = str(asked["program"])
        line = native_line([self._windows(str(word)) for word in asked["words"]])
        search = ";".join(part for part in str(asked["path"]).split(";") if re.match(r"[A-Za-z]:\\", part))
        streams = Streams(_lines("out", tell), _lines("err", tell))
        real = self._real(program)
        if real is not None:
            return nativecommands.on_drive(self.machine, real, self._windows(program), line, search, streams)
        code = self.shell.spawn(f"{program.lower()} {line}".rstrip(), streams)
        self._write_routes()
        self.machine.world.settle()
        return code

    def _write_routes(self) -> None:
        """For Get-NetRoute: what is persistent is active, too."""
        rows = routes.kept(self.machine.config).items()
        (self.folder / "routes.txt").write_text("".join(f"{to} {via}\n" for to, via in rows))

    def _real(self, program: str) -> Path | None:
        path = Path(program) if program.startswith("/") else self.machine.world.drives.real(program)
        separate = "\\" in program or "/" in program
        return path if separate and path is not None and path.is_file() else None

    def _place(self, name: str) -> Path:
        """The folder behind a drive, named by its letter or its root."""
        letter = re.fullmatch(r"([A-Za-z]):?\\?", name)
        return self.machine.world.drives.letters[letter[1].upper()] if letter else Path(name)

    def _windows(self, word: str) -> str:
        """A path below the folder, as a Windows path."""
        match = re.fullmatch(rf"{re.escape(str(self.folder))}/([a-z])(/.*)?", word)
        return f"{match[1].upper()}:" + (match[2] or "/").replace("/", "\\") if match else word

    def _start_task(self, asked: dict[str, Any]) -> None:
        row = self.node.kept()["tasks"].get(str(asked["name"]))
        if row is None:
            raise ScriptError("The system cannot find the file specified.")
        self.tasks.start(str(asked["name"]), partial(self.do, row))

    def _create(self, asked: dict[str, Any]) -> None:
        command = str(asked["command"])
        if "sysprep.exe" not in command.lower():
            raise ScriptError(f"the stand-in starts no process of its own but sysprep.exe: {command}")
        sysprep.run(self.machine, command)

    def _certificate(self, asked: dict[str, Any]) -> None:
        path = self._real(str(asked["file"]))
        if path is None:
            raise ScriptError(f"the PFX file could not be found: {asked['file']}")
        chain, key = bootstrap.pem(path.read_bytes(), str(asked["password"]))
        bootstrap.keep_certificate(self.machine.config, chain, key)

    def _listen(self, asked: dict[str, Any]) -> None:
        del asked
        bootstrap.restart("WinRM")

    def _programs(self, asked: dict[str, Any]) -> list[str]:
        del asked
        return sorted(set(self.shell.commands.programs) - ALIASES)

    def _open_port(self, asked: dict[str, Any]) -> bool:
        if str(asked["name"]).upper() != "COM1" or self.has_port or self.machine.world.port_is_taken():
            return False
        self.has_port = _PORT.acquire(blocking=False)
        return self.has_port

    def _close_port(self, asked: dict[str, Any]) -> None:
        del asked
        self.close_port()

    def close_port(self) -> None:
        """Release the serial port."""
        if self.has_port:
            _PORT.release()
        self.has_port = False


# Names of programs that are aliases of cmdlets, or words of the language, in Windows PowerShell 5.1
ALIASES = frozenset({"sc", "curl", "start", "where", "cmd", "powershell", "find"})


class Tasks:
    """Scheduled tasks that run."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    def start(self, name: str, run: Callable[[], None]) -> None:
        """Start one, unless it runs."""
        if not self.runs(name):
            work = threading.Thread(target=run, daemon=True)
            self._threads[name] = work
            work.start()

    def runs(self, name: str) -> bool:
        """Whether it runs."""
        return name in self._threads and self._threads[name].is_alive()


def _lines(kind: str, tell: Answer) -> Callable[[str], None]:
    """A writer that passes on complete lines."""

    def write(text: str) -> None:
        for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
            tell({kind: line})

    return write


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, bridge: Bridge) -> None:
        super().__init__(path, _Handler)
        self.bridge = bridge


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """One request."""
        line = self.rfile.readline()
        if line:
            self.server.bridge.answer(json.loads(line), self._tell)

    def _tell(self, answer: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def serve(bridge: Bridge, path: Path) -> socketserver.BaseServer:
    """Answer on the socket *path*, in a thread; ``shutdown`` and ``server_close`` of the result end it."""
    server = _Server(str(path), bridge)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.5}, daemon=True).start()
    return server
