"""A Windows node without Windows: a folder with two drives, and winlab's scripts run in it by a real PowerShell engine.

with Machine(folder, engine, winlab / "unattend/windows") as machine:
    told = machine.run("features", {"release": "2022", "features": ["Containers"]})
    assert told.result == {"restart": True}
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess  # noqa: TID251 - runs the engine
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMPLETE = "IMAGE_STATE_COMPLETE"  # Microsoft, Windows Setup States
# Programs of Windows, and how they answer here. Each notes what it was called with
NATIVE = {
    "netsh.exe": "",
    "icacls.exe": "",
    "pnputil.exe": "",
    "logoff.exe": "",
    "tar.exe": 'exec tar "$@"',
    "route.exe": """
        case $2 in
        ADD) bits=$(echo $5 | awk -F. '{n=0; for(i=1;i<=4;i++){b=$i; while(b>0){n+=b%2; b=int(b/2)}} print n}')
            echo "$3/$bits $6" >>"$WINLAB_MACHINE/routes.txt" ;;
        DELETE) sed -i "\\|^$3/.* $6$|d" "$WINLAB_MACHINE/routes.txt" ;;
        esac
        echo " OK!" """,
}
NATIVE |= {
    f"{name}.exe": f'exec python3 "$WINLAB_DOUBLES/programs.py" {name} "$@"'
    for name in (
        "sc",
        "dism",
        "w32tm",
        "wevtutil",
        "ipconfig",
        "netstat",
        "shutdown",
        "tzutil",
        "cscript",
        "hostname",
        "whoami",
    )
}
# Programs of the payload CD
PROGRAMS = {
    "containerd.exe": "",
    "runhcs.exe": "",
    "kubelet.exe": "",
    "kube-proxy.exe": "",
    "kube-log-runner.exe": "",
    "kubectl.exe": "",
    "ctr.exe": """
        images="$WINLAB_MACHINE/images.txt"
        case "$*" in
        version) echo "Client: double" ;;
        *"images ls") touch "$images"; echo "REF TYPE DIGEST SIZE PLATFORMS LABELS"; cat "$images" ;;
        *"images import"*) for last; do :; done
            tar -xOf "$last" index.json | python3 -c 'import json,sys
for m in json.load(sys.stdin)["manifests"]:
    print(m["annotations"]["io.containerd.image.name"], "type", m["digest"], "1.0 MiB", "windows/amd64", "-")
' >>"$images" ;;
        esac""",
    "kubeadm.exe": """
        echo "[preflight] Running pre-flight checks" >&2
        echo "token abcdef.0123456789abcdef is used"
        mkdir -p "$WINLAB_MACHINE/c/etc/kubernetes" "$WINLAB_MACHINE/c/var/lib/kubelet/pki"
        echo "    server: https://10.77.0.10:6443" >"$WINLAB_MACHINE/c/etc/kubernetes/kubelet.conf"
        touch "$WINLAB_MACHINE/c/var/lib/kubelet/pki/kubelet-client-current.pem"
        python3 - <<'P'
import json, os
p = os.environ["WINLAB_MACHINE"] + "/state.json"; s = json.load(open(p))
s["services"]["kubelet"]["status"] = "Running"; json.dump(s, open(p, "w"))
P
        echo "This node has joined the cluster" """,
}
PLUGINS = {"win-bridge.exe": "", "win-overlay.exe": "", "host-local.exe": ""}

# What else a fresh node knows; a test changes it by state()
FRESH: dict[str, Any] = {
    "logged_on": [],  # users with a session on the screen: shutdown.exe then wants /f
    "events": [
        {
            "log": "System",
            "id": 6005,
            "level": 4,
            "provider": "EventLog",
            "time": "2026-11-21T10:00:10Z",
            "message": "The Event log service was started.",
        },
        {
            "log": "System",
            "id": 7036,
            "level": 4,
            "provider": "Service Control Manager",
            "time": "2026-11-21T10:00:20Z",
            "message": "The WinRM service entered the running state.",
        },
        {
            "log": "System",
            "id": 7000,
            "level": 2,
            "provider": "Service Control Manager",
            "time": "2026-11-21T10:00:30Z",
            "message": "The hns service failed to start.",
        },
    ],
    "hotfixes": [{"id": "KB5030216", "description": "Security Update", "on": "2026-11-20"}],
    "packages": ["Package_for_RollupFix~31bf3856ad364e35~amd64~~20348.2762.1.5"],
    "volumes": [
        {"letter": "C", "fs": "NTFS", "size": 42000000000, "free": 25000000000, "label": "", "type": 3},
        {"letter": "D", "fs": "UDF", "size": 1500000000, "free": 0, "label": "WINLAB", "type": 5},
    ],
    "disks": [{"number": 0, "size": 42949672960, "style": "GPT"}],
    "partitions": [
        {"disk": 0, "number": 1, "letter": "", "size": 104857600, "type": "System"},
        {"disk": 0, "number": 2, "letter": "C", "size": 42000000000, "type": "Basic"},
    ],
    "devices": [
        {
            "name": "Red Hat VirtIO Ethernet Adapter",
            "class": "Net",
            "id": "PCI\\VEN_1AF4&DEV_1041",
            "status": "OK",
            "version": "100.95.104.26200",
            "maker": "Red Hat, Inc.",
            "inf": "oem3.inf",
        },
        {
            "name": "Red Hat VirtIO SCSI controller",
            "class": "SCSIAdapter",
            "id": "PCI\\VEN_1AF4&DEV_1042",
            "status": "OK",
            "version": "100.95.104.26200",
            "maker": "Red Hat, Inc.",
            "inf": "oem2.inf",
        },
    ],
    "connections": [
        {"local": "0.0.0.0", "port": 22, "remote": "0.0.0.0", "remote_port": 0, "state": "Listen", "process": 1204},
        {"local": "0.0.0.0", "port": 5986, "remote": "0.0.0.0", "remote_port": 0, "state": "Listen", "process": 4},
        {
            "local": "10.77.0.12",
            "port": 22,
            "remote": "10.77.0.1",
            "remote_port": 50122,
            "state": "Established",
            "process": 1204,
        },
    ],
    "dns": {"node-1": "10.77.0.12", "registry.k8s.io": "10.77.0.1"},
    "reachable": ["10.77.0.1", "10.77.0.10", "10.77.0.10:6443"],
    "time_source": "10.77.0.1,0x8",
    "timezone": "UTC",
    "shutdown": None,
}


@dataclass
class Told:
    """What a script answered: by the contract in docs/worker-scripts.md."""

    code: int
    out: list[str]
    err: list[str]
    seconds: float
    result: Any = None

    def __post_init__(self) -> None:
        if self.code == 0 and self.out and self.out[-1].startswith(("{", "null")):
            self.result = json.loads(self.out[-1])


@dataclass
class Machine:
    """A node's drives and what its Windows would know."""

    folder: Path
    engine: Path
    scripts: Path  # unattend/windows
    release: str = "2022"
    wine: tuple[str, ...] = field(default=())

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
                    r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion": {"CurrentBuild": build, "UBR": 2762},
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
        path.write_text(f'#!/bin/sh\necho "run {path.name} $*" >>"$WINLAB_MACHINE/notes.txt"\n{body}\n')
        path.chmod(0o755)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def state(self, new: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the doubles know; *new* replaces it."""
        path = self.folder / "state.json"
        if new is not None:
            path.write_text(json.dumps(new))
        return dict(json.loads(path.read_text()))

    def payload(self, new: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the payload CD lists; *new* replaces it."""
        path = self.d / "payload.json"
        if new is not None:
            path.write_text(json.dumps(new))
        return dict(json.loads(path.read_text()))

    def restart(self) -> None:
        """What a restart of Windows does: pending features are in, volatile keys are gone."""
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
            "WINLAB_PS_HASTE": "50",
            "NO_COLOR": "1",
            "WINLAB_PS_PRELUDE": str(HERE / "windows.ps1"),
            "WINLAB_DOUBLES": str(HERE),
            "COMPUTERNAME": "node-1",
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    def run(self, script: str | Path, settings: object = None, stdin: bytes | None = None, limit: float = 120) -> Told:
        """Run one as winlab does: -File, the settings on the standard input."""
        file = self.d / f"scripts/{script}.ps1" if isinstance(script, str) else script
        return self.execute(
            ["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File", str(file)],
            json.dumps(settings or {}).encode() if stdin is None else stdin,
            limit,
        )

    def execute(self, words: list[str], stdin: bytes = b"", limit: float = 120) -> Told:
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
