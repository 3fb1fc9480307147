"""A Linux node's tree, its payload CD, and answers in place of its programs; for tests of the package winlab_node."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from winlab.design.contract import on_linux  # noqa: F401 - has calls
from winlab.design.contract.call import Call
from winlab_node import __main__ as program
from winlab_node import kernel
from winlab_node.node import Node

CONFIG = "kind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    apiServerEndpoint: 10.77.0.11:6443\n"
TOKEN = "abcdef.0123456789abcdef"

FILES = {"/etc/containerd/config.toml": {"content": "version = 3\n", "mode": "0644"}}
SETTINGS = {"files": FILES, "services": ["containerd", "kubelet"]}
PROGRAMS = {"kubelet": b"kubelet 1", "kubeadm": b"kubeadm 1", "containerd": b"containerd", "ctr": b"ctr"}


class Runner:
    """Answers instead of processes, by a command's beginning; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.effects: dict[str, Callable[[], None]] = {}

    def __call__(
        self, command: list[str], words: str = "", heard: Callable[[str], None] | None = None
    ) -> tuple[int, str]:
        line = " ".join([Path(command[0]).name, *command[1:]])
        self.asked.append((line, words))
        for start, effect in self.effects.items():
            if line.startswith(start):
                effect()
        code, output = next((a for start, a in self.answers.items() if line.startswith(start)), (0, ""))
        for one in output.splitlines():
            if heard is not None:
                heard(one)
        return code, output

    def lines(self, start: str) -> list[str]:
        return [line for line, _ in self.asked if line.startswith(start)]


class Guest:
    """A tree like a guest's, with a payload CD in a drive."""

    def __init__(self, root: Path) -> None:
        self.root, self.runner = root, Runner()
        for name, content in {
            "proc/stat": "cpu 1\nbtime 1763733600\n",
            "proc/sys/kernel/random/boot_id": "b1\n",
            "proc/swaps": "Filename Type\n",
            "proc/self/mounts": "",
            **{"proc/sys/" + key.replace(".", "/"): "0\n" for key in kernel.SYSCTLS},
        }.items():
            self.put(name, content)
        for name in kernel.MODULES:
            (root / "sys/module" / name).mkdir(parents=True)
        (root / "sys/block/sr0").mkdir(parents=True)
        (root / "sys/block/sr1").mkdir(parents=True)
        self.put("dev/sr0", _disc(b"cidata"))
        self.put("dev/sr1", _disc(b"WINLAB_K8S"))
        self.cd = root / "run/winlab/payload"
        self.runner.answers["systemctl is-active"] = (3, "inactive\ninactive\n")

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def burn(self, programs: dict[str, bytes], plugins: dict[str, bytes]) -> None:
        rows = {}
        for part, given in (("programs", programs), ("cni", plugins)):
            rows[part] = {name: {"version": "v1", "sha256": sha(content)} for name, content in given.items()}
            for name, content in given.items():
                self.put(f"run/winlab/payload/{part}/{name}", content)
        self.put("run/winlab/payload/payload.json", json.dumps({**rows, "images": {}}))

    def node(self) -> Node:
        return Node(self.root, self.runner)

    def do(self, verb: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Run a verb; its call and its result match the contract."""
        (call,) = (one for one in Call.__subclasses__() if one.script == verb and "linux" in one.on)
        assert settings.keys() <= call.known("linux")
        told = program.verb(verb)(self.node(), settings)
        call.result.model_validate(told)
        return told


def _disc(label: bytes) -> bytes:
    return bytes(16 * 2048) + (b"\x01CD001\x01\x00" + bytes(32) + label.ljust(32)).ljust(2048, b"\0")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive(path: Path, images: dict[str, str]) -> Path:
    rows = [{"digest": digest, "annotations": {"io.containerd.image.name": name}} for name, digest in images.items()]
    content = json.dumps({"manifests": rows}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("index.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


def joins(guest: Guest) -> None:
    guest.put("etc/kubernetes/kubelet.conf", "")
    guest.put("var/lib/kubelet/pki/kubelet-client-current.pem", "")
