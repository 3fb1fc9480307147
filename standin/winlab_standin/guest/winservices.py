"""The services that winlab sets up in Windows: containerd, kubelet, kube-proxy.

They are in Wine's service manager, but are recorded on C:, for three reasons. Wine's registry is made again at every
start. Wine can't list its services (``sc query``). Wine accepts recovery actions, but never carries them out. The
:class:`Manager` does what Windows' service manager does. It starts the automatic services in the order of their
dependencies, and starts services again that have ended by themselves.

kube-proxy.exe ends on Wine ("Windows kernel is not compatible"), so its service only *pretends* to run.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from winlab_standin.guest import wine
from winlab_standin.guest.kept import locked, write
from winlab_standin.guest.place import STATE
from winlab_standin.guest.report import write_port

PROC = Path("/proc")
START = 4.0  # seconds between two looks at the services
PRETENDED = ("kube-proxy",)  # services that only pretend to run
NEEDS = {"kubelet": "var/lib/kubelet/config.yaml"}  # see Unit.needs
# Before containerd 2.3 its CimFS snapshotter makes two disks here on Windows Server 2022 and later, with functions that
# Wine lacks: containerd.exe ends at once. It accepts disks that exist already, and winlab does not use them
# (containerd 2.1.9, plugins/snapshots/windows/cimfs.go)
SCRATCH = "ProgramData/containerd/root/io.containerd.snapshotter.v1.cimfs"
SCRATCH_DISKS = ("blank-base.vhdx", "blank.vhdx")
# A kubelet.exe that was killed may leave its pipe in Wine's server forever (seen once). Each new one then ends with
# this line. Windows closes a process's pipes when it ends
LEFT_PIPE = re.compile(r"kubelet-pod-resources.*access (is )?denied", re.IGNORECASE)
KUBELET_LOG = "var/log/kubelet/kubelet.log"
LAST = 8192  # bytes at the end of a log that say why its program has ended
SETTLED = 60.0  # seconds in which a new process may still become another program


@dataclass(frozen=True)
class Unit:
    """A service: its command line, what must run before it, and the delays (seconds) of its recovery actions."""

    name: str
    command: str
    depends: tuple[str, ...] = ()
    recovery: tuple[float, ...] = ()
    automatic: bool = True
    pretence: bool = False
    needs: str = ""  # a file on C: without which it would end again: until then it is not started automatically

    @property
    def program(self) -> str:
        """The file name of the program that the service starts, in lower case."""
        text = self.command.strip()
        path = text[1:].partition('"')[0] if text.startswith('"') else _until_exe(text)
        return path.replace("/", "\\").rpartition("\\")[2].lower()


def _until_exe(text: str) -> str:
    place = text.lower().find(".exe")
    return text[: place + 4] if place >= 0 else text.partition(" ")[0]


def registry_text(units: list[Unit]) -> str:
    """The services in the text format of Wine's registry, with manual start (3): see this module's docstring."""
    parts = []
    for unit in units:
        if unit.pretence:
            continue
        command = unit.command.replace("\\", "\\\\").replace('"', '\\"')
        values = [
            f'"DisplayName"="{unit.name}"',
            '"ErrorControl"=dword:00000001',
            f'"ImagePath"="{command}"',
            '"ObjectName"="LocalSystem"',
            '"PreshutdownTimeout"=dword:0002bf20',
            '"Start"=dword:00000003',
            '"Type"=dword:00000010',
        ]
        parts.append(f"[System\\\\ControlSet001\\\\Services\\\\{unit.name}] 1\n" + "\n".join(values) + "\n")
    return "\n".join(parts)


class Processes:
    """The Windows programs that run.

    Reading a hundred of them again and again took much of an emulated CPU's time. So a process is read only in its
    first minute; after that its program no longer changes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[str, tuple[str, float]] = {}  # by process: its program, and when it was first seen

    def __call__(self) -> set[str]:
        """Their file names, in lower case."""
        there = {path.name for path in self._proc.iterdir() if path.name.isdigit()}
        self._known = {name: known for name, known in self._known.items() if name in there}
        now = time.monotonic()
        for name in there:
            _, first = self._known.get(name, ("", now))
            if now - first < SETTLED:
                self._known[name] = (_program(self._proc / name / "cmdline"), first)
        return {program for program, _ in self._known.values() if program}


def _program(path: Path) -> str:
    try:
        line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").lower()
    except OSError:
        return ""  # it has ended meanwhile
    match = re.match(r"[a-z]:[\\/][^:]*?([^\\/:]+?\.exe)(?=[\s\"]|$)", line)
    return match[1] if match else ""


class Manager:
    """The services on record in *path*."""

    def __init__(self, path: Path, running: Callable[[], set[str]] | None = None) -> None:
        self.path = path
        self._processes = running or Processes()

    def units(self) -> dict[str, Unit]:
        """The services by name."""
        rows = json.loads(self.path.read_text()) if self.path.is_file() else []
        made = [Unit(**{**row, "depends": tuple(row["depends"]), "recovery": tuple(row["recovery"])}) for row in rows]
        return {unit.name: unit for unit in made}

    def record(self, unit: Unit) -> None:
        """Store a service, new or changed."""
        with locked(self.path):
            units = {**self.units(), unit.name: unit}
            write(self.path, json.dumps([asdict(one) for one in units.values()], indent=1))
        os.sync()

    def state(self, name: str) -> str:
        """``running``, ``stopped``, or ``absent``."""
        unit = self.units().get(name)
        if unit is None:
            return "absent"
        if unit.pretence:
            return "stopped" if self._held(name).exists() else "running"
        return "running" if unit.program in self._processes() else "stopped"

    def create(self, unit: Unit) -> None:
        """Make a service, or give an existing one another command.

        :raises OSError: Wine refuses.
        """
        if unit.pretence:
            self.record(unit)
            return
        if unit.name in self.units():
            key = rf"HKLM\SYSTEM\CurrentControlSet\Services\{unit.name}"
            words = ["reg", "add", key, "/v", "ImagePath", "/t", "REG_SZ", "/d", unit.command, "/f"]
        else:
            words = ["sc", "create", unit.name, "binPath=", unit.command, "start=", "auto"]
        code, text = wine.call(words)
        if code:
            raise OSError(f"sc.exe : {unit.name}: {text.strip() or f'exit code {code}'}")
        self.record(unit)

    def start(self, name: str) -> None:
        """Start a service and what it depends on.

        :raises OSError: it does not start.
        """
        unit = self.units()[name]
        for other in unit.depends:
            if self.state(other) == "stopped":
                self.start(other)
        self._held(name).unlink(missing_ok=True)
        if unit.pretence or self.state(name) == "running":
            return
        if unit.program == "containerd.exe":
            self._make_scratch_disks()
        code, text = wine.call(["net", "start", name])
        if code and self.state(name) != "running":
            raise OSError(f"Start-Service : Service '{name}' cannot be started: {text.strip()}")

    def stop(self, name: str) -> None:
        """Stop a service, and check that it has ended.

        :raises OSError: it has not.
        """
        self._held(name).write_text("\n")
        unit = self.units()[name]
        if unit.pretence or self.state(name) != "running":
            return
        wine.call(["net", "stop", name])
        end = time.monotonic() + 20
        while self.state(name) == "running":
            if time.monotonic() > end:
                wine.call(["taskkill", "/f", "/im", unit.program])
                break
            time.sleep(0.5)
        if self.state(name) == "running":
            raise OSError(f"Stop-Service : Service '{name}' cannot be stopped")

    def _make_scratch_disks(self) -> None:
        folder = self.path.parents[3] / SCRATCH
        folder.mkdir(parents=True, exist_ok=True)
        for disk in SCRATCH_DISKS:
            (folder / disk).touch()

    def _held(self, name: str) -> Path:
        """A file that exists while a service is stopped on request."""
        return STATE / f"held.{name}"

    def _ready(self, unit: Unit) -> bool:
        return not unit.needs or (self.path.parents[3] / unit.needs).is_file()

    def start_automatic(self) -> None:
        """Do what Windows does when it starts."""
        for name, unit in self.units().items():
            if unit.automatic and self._ready(unit):
                try:
                    self.start(name)
                except OSError as error:
                    write_port(f"setup: service {name}: {' '.join(str(error).split())}\r\n")

    def watch(self, seen: dict[str, int]) -> None:
        """Start services again that ran and have ended by themselves. *seen*: how often each has ended, and the
        services that have run since the start; the caller keeps it between calls."""
        running = self._processes()
        for name, unit in self.units().items():
            if unit.pretence or self._held(name).exists() or not self._ready(unit):
                continue
            if unit.program in running:
                seen.setdefault(name, 0)
            elif name in seen and unit.recovery and not wine.FAILED.exists():
                delay = unit.recovery[min(seen[name], len(unit.recovery) - 1)]
                seen[name] += 1
                write_port(f"setup: service {name} has ended by itself: it is started again in {delay:.0f} s\r\n")
                time.sleep(delay)
                try:
                    if name == "kubelet" and self._left_pipe():
                        write_port("setup: Wine kept a pipe of kubelet's: everything in Wine is started again\r\n")
                        wine.restart()
                    self.start(name)
                except OSError as error:
                    write_port(f"setup: service {name}: {' '.join(str(error).split())}\r\n")

    def _left_pipe(self) -> bool:
        """Whether kubelet has ended because of a pipe that its predecessor left. Such a log is emptied, so that the
        next check reads only the next start."""
        log = self.path.parents[3] / KUBELET_LOG
        if not log.is_file():
            return False
        with log.open("rb+") as stream:
            stream.seek(max(0, log.stat().st_size - LAST))
            found = LEFT_PIPE.search(stream.read().decode("utf-8", "replace")) is not None
            if found:
                stream.truncate(0)
        return found

    def serve(self) -> None:
        """Start the automatic services, then watch all services forever."""
        self.start_automatic()
        seen: dict[str, int] = {name: 0 for name, unit in self.units().items() if unit.automatic}
        while wine.READY.exists():
            time.sleep(START)
            self.watch(seen)
