"""The machine that commands run on, as they see it; tests replace it."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from winlab_standin.guest import accounts, driverstore, releases
from winlab_standin.guest.base import run
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.place import REGISTRY, STATE, C
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.releases import PORT_TAKEN, Windows
from winlab_standin.guest.report import write_port
from winlab_standin.guest.winservices import Manager

LOGGED_ON = STATE / "logged-on"


@dataclass(frozen=True)
class Adapter:
    """A network adapter: addresses are (address, prefix length)."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[tuple[str, int], ...]
    lease: dict[str, str] = field(default_factory=dict)


def ask_power(action: str, delay: float = 0.0) -> None:
    """Ask the first process for a restart (``reboot``) or to switch off (``poweroff``) after *delay* seconds.

    A rename does that in one step: the first process looks each second, and must never find half of the file.
    """
    fresh = STATE / f"power.{os.getpid()}"
    fresh.write_text(f"{action} {delay}\n")
    fresh.replace(STATE / "power")


@dataclass
class World:
    """The machine."""

    drives: Drives
    registry: Registry
    durable: bool = False  # whether what a command wrote must be on the disk when the command has ended
    has_com1: bool = True  # whether the first serial port has its name, COM1
    watches: bool = False  # whether winlab's pe.cmd runs, which copies Setup's error log to that port
    holds_disks: bool = False  # whether another program uses the disks' service, and Setup refuses to share it
    windows: Windows = field(default_factory=Windows)

    @classmethod
    def real(cls) -> World:
        """The machine that this runs on."""
        letters = {"C": C}
        letters |= {path.name: path for path in sorted(Path("/media").glob("[A-Z]"))}
        windows = releases.installed(C)
        return cls(Drives(letters), Registry(C / "Windows/System32/config" / REGISTRY, windows), True, windows=windows)

    def settle(self) -> None:
        """Flush what was written to the disk: if the machine is reset, the work of finished commands is not lost."""
        if self.durable:
            os.sync()

    def name(self) -> str:
        """The computer's name."""
        return socket.gethostname()

    def account(self) -> str:
        """The name that the built-in account has now."""
        return accounts.name(C / "Windows/System32/config", self.windows)

    def variables(self) -> dict[str, str]:
        """The environment of a command."""
        return {
            "ALLUSERSPROFILE": r"C:\ProgramData",
            "COMPUTERNAME": self.name().upper(),
            "COMSPEC": r"C:\Windows\system32\cmd.exe",
            "HOMEDRIVE": "C:",
            "HOMEPATH": r"\Users\Administrator",
            "NUMBER_OF_PROCESSORS": str(os.cpu_count() or 1),
            "OS": "Windows_NT",
            "PATH": r"C:\Windows\system32;C:\Windows;C:\Windows\System32\Wbem",
            "PATHEXT": ".COM;.EXE;.BAT;.CMD",
            "PROCESSOR_ARCHITECTURE": "AMD64",
            "PROGRAMDATA": r"C:\ProgramData",
            "PROGRAMFILES": r"C:\Program Files",
            "SYSTEMDRIVE": "C:",
            "SYSTEMROOT": r"C:\Windows",
            "TEMP": r"C:\Windows\Temp",
            "USERDOMAIN": self.name().upper(),
            "USERNAME": self.account(),
            "USERPROFILE": r"C:\Users\Administrator",
            "WINDIR": r"C:\Windows",
        }

    def serial(self, text: str) -> None:
        """Write to the first serial port."""
        write_port(text)

    def port_is_taken(self) -> bool:
        """Whether another program has the serial port: with that trap, from when Windows is ready until it logs off."""
        ready = self.drives.letters["C"] / "winlab/ready.txt"
        return PORT_TAKEN in self.windows.traps and ready.is_file() and self.logged_on()

    def adapters(self) -> list[Adapter]:
        """The network adapters that have drivers, in order."""
        found = []
        drivers = driverstore.known(C)
        for item in json.loads(run(["ip", "-j", "addr"]).stdout or "[]"):
            device = driverstore.hardware(Path("/sys/class/net") / item["ifname"])
            if item.get("link_type") == "ether" and driverstore.works(device, drivers):
                addresses = tuple((one["local"], one["prefixlen"]) for one in item.get("addr_info", []))
                lease = read_pairs(STATE / f"lease.{item['ifname']}")
                found.append(Adapter(item["ifname"], item.get("address", ""), item["mtu"], addresses, lease))
        return found

    def resolver(self) -> tuple[list[str], list[str]]:
        """The DNS servers and the search domains."""
        servers, domains = [], []
        path = Path("/etc/resolv.conf")
        for line in path.read_text().splitlines() if path.is_file() else []:
            words = line.split()
            if words[:1] == ["nameserver"]:
                servers += words[1:2]
            elif words[:1] == ["search"]:
                domains += words[1:]
        return servers, domains

    def power(self, action: str, delay: float) -> None:
        """Restart (``reboot``) or switch off (``poweroff``) after *delay* seconds."""
        ask_power(action, delay)

    def logged_on(self) -> bool:
        """Whether someone is logged on at the screen."""
        return LOGGED_ON.exists()

    def log_on(self) -> None:
        """Log Administrator on at the screen, until the next start or :meth:`log_off`."""
        LOGGED_ON.touch()

    def log_off(self) -> None:
        """Log Administrator off."""
        LOGGED_ON.unlink(missing_ok=True)

    def clock(self) -> float:
        """The clock: seconds since 1970, UTC."""
        return time.time()

    def set_clock(self, seconds: float) -> None:
        """Set the clock."""
        time.clock_settime(time.CLOCK_REALTIME, seconds)

    def booted(self) -> str:
        """When the system was started, in UTC: 2026-11-21T10:00:00Z.

        :raises OSError: the kernel does not report it.
        """
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return datetime.fromtimestamp(int(line.split()[1]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise OSError("the time of the last start is unknown")

    def services(self) -> dict[str, bool]:
        """The services and whether they run."""
        manager = Manager(C / "Windows/System32/config/standin-services.json")
        return {
            **{name: manager.state(name) == "running" for name in manager.units()},
            "sshd": Path("/run/sshd.pid").exists(),
            "WinRM": (STATE / "winrm").exists(),
            "QEMU-GA": (STATE / "qemu-ga").exists(),
        }

    def memory(self) -> int:
        """The memory, MiB."""
        line = Path("/proc/meminfo").read_text().split()
        return int(line[1]) // 1024

    def processes(self) -> list[tuple[int, str, int]]:
        """Processes: number, name, memory in KiB."""
        found = []
        for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda item: int(item.name)):
            try:
                name = (path / "comm").read_text().strip()
                pages = int((path / "statm").read_text().split()[1])
            except OSError:
                continue  # it has ended meanwhile
            if pages:
                found.append((int(path.name), name, pages * 4))
        return found


def read_pairs(path: Path) -> dict[str, str]:
    """A file of ``name=value`` lines."""
    if not path.is_file():
        return {}
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
