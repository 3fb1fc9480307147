"""A Windows node without Windows: a folder with two drives, and winlab's scripts run in it by a real PowerShell engine.

with Machine(folder, engine, winlab / "unattend/windows") as machine:
    ran = machine.run("features", {"release": "2022", "features": ["Containers"]})
    assert ran.result == {"restart": True}
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess  # noqa: TID251 - runs the engine
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from powershell.doubles.fresh import COMPLETE, FRESH, NATIVE, PLUGINS, PROGRAMS
from powershell.doubles.session import WINDOWS, Session

HERE = Path(__file__).resolve().parent
PARTS = {
    "cni": ("network",),
    "containerd": ("images",),
    "load": ("images",),
    "seal": ("tasks",),
    "updates": ("tasks",),
}  # of scripts: others that they run
LIMIT = 600.0  # seconds for a script; only one that hangs exceeds it


@dataclass
class Told:
    """What a script answered: by the contract in docs/worker-scripts.md."""

    code: int
    out: list[str]
    err: list[str]
    seconds: float
    result: Any = None
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.code == 0 and self.out and self.out[-1].startswith(("{", "null")):
            self.result = json.loads(self.out[-1])


@dataclass
class Machine:
    """A node's drives and the state of its Windows."""

    folder: Path
    engine: Path
    scripts: Path  # unattend/windows
    release: str = "2022"
    wine: tuple[str, ...] = field(default=())
    ran: ClassVar[set[str]] = set()  # scripts, by any machine
    session: Session | None = None  # runs the scripts, where the engine need not start for each
    haste: int = 50  # how many times shorter a script sleeps

    def __enter__(self) -> Machine:
        self.c, self.d, self.bin = self.folder / "c", self.folder / "d", self.folder / "bin"
        for path in (
            self.c / "Windows/System32/Sysprep/Panther",
            self.d / "scripts",
            self.d / "images",
            self.d / "push",
            self.bin,
        ):
            path.mkdir(parents=True)
        shutil.copytree(self.scripts / "worker", self.d / "scripts", dirs_exist_ok=True)
        for name, body in NATIVE.items():
            self.program(self.bin / name, body)
            plain = self.bin / name.removesuffix(".exe")
            if (
                plain.name not in ("tar", "sc") and not plain.exists()
            ):  # sc is an alias of 5.1, tar the program under tar.exe
                plain.symlink_to(name)
        listed: dict[str, dict[str, Any]] = {"programs": {}, "cni": {}, "images": {}}
        for part, programs in (("programs", PROGRAMS), ("cni", PLUGINS)):
            (self.d / part).mkdir()
            for name, body in programs.items():
                digest = self.program(self.d / part / name, body)
                listed[part][name] = {"version": "v1", "sha256": digest}
        (self.d / "payload.json").write_text(json.dumps(listed))
        for path in self.d.rglob("*"):  # files copied from a CD are read-only
            if path.is_file():
                path.chmod(path.stat().st_mode & ~0o222)
        build = {"2019": "17763", "2022": "20348", "2025": "26100"}[self.release]
        self.state(
            {
                "services": {
                    name: {"status": status, "start": start, "depends": []}
                    for name, status, start in (
                        ("wuauserv", "Running", "Manual"),
                        ("hns", "Stopped", "Manual"),
                        ("RemoteAccess", "Stopped", "Disabled"),
                        ("WinRM", "Running", "Automatic"),
                        ("W32Time", "Running", "Automatic"),
                        ("sshd", "Running", "Manual"),
                    )
                },
                "features": {
                    "Containers": "Available",
                    "Routing": "Available",
                    "RemoteAccess": "Available",
                    "RSAT-RemoteAccess-PowerShell": "Available",
                },
                "tasks": {},
                "rules": {},
                "adapters": [
                    {
                        "name": "Ethernet",
                        "ifIndex": 4,
                        "addresses": ["10.77.0.12"],
                        "mac": "52-54-00-12-34-56",
                        "gateway": "10.77.0.1",
                        "dns": ["10.77.0.1"],
                    }
                ],
                "mtu": 1450,
                "release": self.release,
                **FRESH,
                "networks": [],
                "endpoints": [],
                "evaluation": 259200,
                "processes": [],
                "closed": [],
                "updates": [],
                "users": [
                    {"Name": "Administrator", "SID": "S-1-5-21-1004336348-1177238915-682003330-500"},
                    {"Name": "Guest", "SID": "S-1-5-21-1004336348-1177238915-682003330-501"},
                ],
            }
        )
        (self.folder / "registry.json").write_text(
            json.dumps(
                {
                    r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion": {
                        "CurrentBuild": build,
                        "UBR": 2762,
                        "InstallationType": "Server Core",
                    },
                    r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon": {
                        "AutoAdminLogon": "1",
                        "DefaultPassword": "secret",
                    },
                    r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System": {"EnableLUA": 1},
                    r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State": {"ImageState": COMPLETE},
                    r"HKLM\SYSTEM\Setup": {"UnattendFile": r"C:\Windows\Panther\unattend.xml"},
                    r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters": {
                        "BootId": 17
                    },
                    r"Cert\LocalMachine\My": {},
                    r"WSMan\localhost\Listener": {},
                    r"WSMan\localhost\Listener\Listener_1": {"Transport": "HTTP"},
                }
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def program(path: Path, body: str) -> str:
        """A shell script in the place of a program; its SHA-256."""
        note = f'printf "%s\\n" "run {path.name} $*" >>"$WINLAB_MACHINE/notes.txt"'  # an echo would change "\\v"
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{note}\n{body}\n")
        path.chmod(0o755)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def state(self, new: dict[str, Any] | None = None) -> dict[str, Any]:
        """The state of the fakes; *new* replaces it."""
        path = self.folder / "state.json"
        if new is not None:
            path.write_text(json.dumps(new))
        return dict(json.loads(path.read_text()))

    def payload(self, new: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the payload CD lists; *new* replaces it."""
        path = self.d / "payload.json"
        if new is not None:
            path.unlink()
            path.write_text(json.dumps(new))
        return dict(json.loads(path.read_text()))

    def path(self, name: str) -> Path:
        """The local path of a file of a drive, by its path in Windows."""
        return self.folder / name[0].lower() / name[3:].replace("\\", "/")

    def restart(self) -> None:
        """The effects of a restart of Windows: pending features are in, volatile keys are gone."""
        state = self.state()
        state["features"] = {
            name: "Installed" if now == "InstallPending" else now for name, now in state["features"].items()
        }
        state["shutdown"], state["logged_on"] = None, []
        for row in state["services"].values():
            row["status"] = "Running" if row["start"] == "Automatic" else "Stopped"
        self.state(state)
        path = self.folder / "registry.json"
        path.write_text(
            json.dumps(
                {key: values for key, values in json.loads(path.read_text()).items() if "(volatile)" not in values}
            )
        )

    def registry(self, key: str, name: str, value: object) -> None:
        """Set a value of the registry."""
        path = self.folder / "registry.json"
        every = json.loads(path.read_text())
        every.setdefault(key, {})[name] = value
        path.write_text(json.dumps(every))

    def notes(self) -> str:
        path = self.folder / "notes.txt"
        return path.read_text() if path.exists() else ""

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "WINLAB_MACHINE": str(self.folder),
            "WINLAB_PS": str(self.engine),
            "WINLAB_PS_HASTE": str(self.haste),
            "NO_COLOR": "1",
            "WINLAB_PS_PRELUDE": str(WINDOWS / "windows.ps1"),
            "WINLAB_DOUBLES": str(HERE),
            "COMPUTERNAME": "node-1",
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    def run(
        self,
        script: str | Path,
        settings: object = None,
        stdin: bytes | None = None,
        limit: float = LIMIT,
        fail: tuple[str, int] | None = None,
        watch: Sequence[str] = (),
    ) -> Told:
        """Run one as winlab does: -File, the settings on the standard input.

        :param limit: seconds.
        :param fail: a command, and which of its calls fails; in a session only, as what is watched.
        :param watch: the commands whose calls the answer lists.
        """
        file = self.d / f"scripts/{script}.ps1" if isinstance(script, str) else script
        Machine.ran |= {"common", file.stem, *PARTS.get(file.stem, ())}
        given = json.dumps(settings or {}).encode() if stdin is None else stdin
        if self.session:
            request = {"script": str(file), "lines": given.decode().splitlines(), "step": True}
            return self.ask(request, limit, fail, watch)
        words = ["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", str(file)]
        return self.execute(words, given, limit)

    def ask(
        self,
        request: dict[str, Any],
        limit: float = LIMIT,
        fail: tuple[str, int] | None = None,
        watch: Sequence[str] = (),
    ) -> Told:
        """Run something in the session; session.ps1 has the fields of *request*."""
        assert self.session is not None
        begun = time.monotonic()
        more = {"environment": self.environment() | {"WINLAB_PS_HASTE": "2000"}, "watch": list(watch)}
        if fail:
            more["fail"] = {"name": fail[0], "at": fail[1]}
        told = self.session.ask(request | more, limit)
        out, err = told["out"].splitlines(), told["err"].splitlines()
        return Told(told["code"], out, err, time.monotonic() - begun, calls=told["calls"] or [])

    def execute(self, words: list[str], stdin: bytes = b"", limit: float = LIMIT) -> Told:
        begun = time.monotonic()
        made = subprocess.run(
            [*self.wine, str(self.engine), *words],
            input=stdin,
            capture_output=True,
            timeout=limit,
            env=self.environment(),
            check=False,
        )
        return Told(
            made.returncode,
            made.stdout.decode().splitlines(),
            made.stderr.decode().splitlines(),
            time.monotonic() - begun,
        )
