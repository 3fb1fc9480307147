"""A worker in a folder, for tests: Wine's programs are recorded, not run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from winlab import data
from winlab_standin.guest import node, players, scripts, wine, winservices, workerfiles
from winlab_standin.guest.machine import Machine
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import Adapter, World

PROGRAMS = ("containerd.exe", "ctr.exe", "kubeadm.exe", "kubelet.exe", "kube-proxy.exe", "kube-log-runner.exe")
KUBELET = r"C:\k\kube-log-runner.exe --log-file=C:/var/log/kubelet/kubelet.log C:/k/kubelet.exe --windows-service"
PROXY = r"C:\k\kube-log-runner.exe --log-file=C:/var/log/p.log C:/k/kube-proxy.exe --windows-service --config=C:/x"
JOIN = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n    apiServerEndpoint: 10.0.0.1:6443\n"
FILES = {"10-winlab.conflist": '{"name": "winlab"}'}


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Computer(World):
    def name(self) -> str:
        return "node-1"

    def adapters(self) -> list[Adapter]:
        return [Adapter("eth0", "52:54:00:12:34:56", 1450, (("10.77.0.12", 24),), {"router": "10.77.0.1"})]

    def booted(self) -> str:
        return "2026-11-21T10:00:00Z"

    def services(self) -> dict[str, bool]:
        return {"WinRM": True, "sshd": True}


class Programs:
    """Replaces Wine: records the calls, and acts like the programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[list[str]] = []
        self.running: set[str] = set()
        self.answers: dict[str, tuple[int, str]] = {}
        self.path = ""

    def call(self, words: list[str], limit: float = 0) -> tuple[int, str]:
        self.calls.append(words)
        program = words[0].rpartition("\\")[2]
        if words[:2] == ["net", "start"]:
            self.running.add({"kubelet": "kube-log-runner.exe"}.get(words[2], f"{words[2]}.exe"))
        if words[:2] == ["net", "stop"]:
            self.running.discard({"kubelet": "kube-log-runner.exe"}.get(words[2], f"{words[2]}.exe"))
        if words[:2] == ["reg", "query"]:
            return 0, f"\n    ImagePath    REG_SZ    {players.CONTAINERD_COMMAND}\n"
        return self.answers.get(program, (0, ""))

    def join(self, words: list[str], tell: Callable[[str], None], path: str = "") -> int:
        self.calls.append(words)
        self.path = path
        assert (self.root / "k/join.yaml").read_text() == JOIN
        assert (self.root / "k/join.yaml").stat().st_mode & 0o77 == 0
        tell("[preflight] token abcdef.0123456789abcdef is fine")
        code = self.answers.get("kubeadm.exe", (0, ""))[0]
        if not code:
            (self.root / "etc/kubernetes").mkdir(parents=True, exist_ok=True)
            (self.root / "etc/kubernetes/kubelet.conf").write_text("server: https://10.0.0.1:6443\n")
            (self.root / "var/lib/kubelet/pki").mkdir(parents=True)
            (self.root / "var/lib/kubelet/config.yaml").write_text("x")
            (self.root / "var/lib/kubelet/pki/kubelet-client-current.pem").write_text("-----BEGIN CERTIFICATE-----\n")
            self.running.add("kube-log-runner.exe")
        return code


class Worker:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root, cd, state = folder / "c", folder / "d", folder / "run"
        for path in (root / "Windows/System32/config", cd / "programs", cd / "cni", cd / "scripts", state):
            path.mkdir(parents=True)
        for name in PROGRAMS:
            (cd / "programs" / name).write_text(name)
        (cd / "cni/win-bridge.exe").write_text("bridge")
        rows: dict[str, Any] = {
            part: {path.name: {"sha256": digest_of(path.read_text())} for path in (cd / part).iterdir()}
            for part in ("programs", "cni")
        }
        (cd / "payload.json").write_text(json.dumps(rows))
        for script in (data.folder("unattend") / "windows/worker").glob("*.ps1"):
            (cd / "scripts" / script.name).write_bytes(script.read_bytes())
        for module in (node, scripts, winservices):
            monkeypatch.setattr(module, "STATE", state)
        monkeypatch.setattr(workerfiles, "MEMORY", state / "digests.json")
        monkeypatch.setattr(node, "DROP", 0.0)
        self.programs = Programs(root)
        monkeypatch.setattr(wine, "call", self.programs.call)
        monkeypatch.setattr(wine, "pass_through", self.programs.join)
        self.said: list[str] = []
        config = root / "Windows/System32/config"
        self.state = state
        self.machine = Machine(
            root,
            cd,
            config,
            Manager(config / "standin-services.json", lambda: self.programs.running),
            Computer(Drives({"C": root, "D": cd}), Registry(config / "registry.json")),
            self.said.append,
        )

    def play(self, script: str, **settings: Any) -> dict[str, Any]:
        return scripts.play(f"{script}.ps1", self.machine, settings)

    def restart(self) -> None:
        node.settle(self.machine.config, self.machine.world)

    def up_to(self, script: str) -> None:
        """All scripts before *script*."""
        steps: list[tuple[str, Callable[[], object]]] = [
            ("features", lambda: (self.play("features", features=["Containers"], release="2022"), self.restart())),
            ("containerd", lambda: self.play("containerd", config="version = 3\n")),
            ("binaries", lambda: self.play("binaries")),
            ("kubelet", lambda: self.play("kubelet", command=KUBELET)),
            ("join", lambda: self.play("join", configuration=JOIN, name="node-1")),
            ("cni", lambda: self.play("cni", files=FILES, network=None)),
        ]
        for name, act in steps:
            if name == script:
                return
            act()
