"""A lab without guests: drives that remember, nodes with given answers, an API server of dictionaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import answers
import pycdlib
import pytest
import sites

from winlab.adapters.guests import systems
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import devices, domains, protected, pushed
from winlab.adapters.vm.domains import Machine, Named
from winlab.adapters.vm.pushed import Pushed
from winlab.design.contract.call import Call, R
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.tags import Tag
from winlab.engine import lab_on_site
from winlab.errors import ClusterError
from winlab.lab_folder import LabFolder
from winlab.operations import drives, push

PAYLOAD = {"linux": "base-kubernetes-linux-1.iso", "windows": "base-kubernetes-windows-1.iso"}


def machine(node: str, os: str = "windows", state: str = "running") -> Machine:
    role = "controller" if node.startswith("controller") else "worker"
    tag = Tag(
        lab="lab", node=node, role=role, os=os, image="x", user="u", address="10.77.0.2", floating="1.2.3.4", plan="p"
    )
    return Machine(f"winlab-lab.{node}", state, tag, hypervisor=HYPERVISOR)


class Pool:
    def __init__(self) -> None:
        self.volumes: dict[str, dict[str, bytes]] = {name: {} for name in PAYLOAD.values()}
        self.deleted: list[str] = []

    def upload(self, name: str, source: Path) -> None:
        self.volumes[name] = read_iso(source)

    def exists(self, name: str) -> bool:
        return name in self.volumes

    def path(self, name: str) -> Path:
        return Path("/pool") / name

    def delete(self, name: str) -> bool:
        if name in self.volumes:
            self.deleted.append(name)
        return self.volumes.pop(name, None) is not None


class FakeLab:
    """Everything that a test may look at. ``script`` answers for the nodes' scripts."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.inside: dict[str, str] = {}  # domain -> volume
        self.log: list[str] = []
        self.runs = True  # whether its machines do
        self.pushed: dict[str, list[Pushed]] = {}  # domain -> its own builds
        self.script: Callable[[Tag, str, Mapping[str, Any]], dict[str, Any]] = lambda tag, name, settings: {}
        self.folder = LabFolder("lab")
        self.standing = sites.lab("lab", sites.hypervisor(pool=self.pool))
        self.site: Any = self.standing.site
        self.drives = drives.Drives(self.standing)

    def add(self, one: Machine) -> Machine:
        self.inside[one.domain] = PAYLOAD[one.tag.os]
        return one


def fake_lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    made = FakeLab()

    def insert(conn: object, one: Named, target: str, bus: str, path: Path) -> None:
        made.log.append(f"{one.domain.removeprefix('winlab-lab.')}: {path.name}")
        made.inside[one.domain] = path.name

    def medium(conn: object, one: Named, target: str) -> Path | None:
        return Path("/pool") / made.inside[one.domain] if one.domain in made.inside else None

    class NodeScripts:
        def __init__(self, tag: Tag, folder: LabFolder, scale: float, log_in: object = None) -> None:
            self.tag = tag
            self.scale = scale
            self.how = "" if log_in is None else " by a spare way"

        def __enter__(self) -> NodeScripts:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            pass

        def disconnect(self) -> None:
            made.log.append(f"{self.tag.node}: disconnected")

        def execute(self, command: list[str], stdin: bytes = b"") -> str:
            if command == ["hostname"]:
                return self.tag.node
            wanted = command[0].split("exist %d:\\")[1].split(" ")[0].replace("\\", "/")
            there = made.pool.volumes[made.inside[f"winlab-lab.{self.tag.node}"]]
            return "E:" if wanted in there else ""

        def sees(self, file: str, *, there: bool) -> bool:
            return systems.ways(self.tag.system).sees(self.execute, file, there=there)

        def run(self, call: Call[R], heard: object = None) -> R:
            made.log.append(f"{self.tag.node}: {call.script}{self.how}")
            told = made.script(self.tag, call.script, call.settings(self.tag.os))
            return answers.result(call, told, self.tag.node)

    monkeypatch.setattr(protected, "read", lambda *_: None)
    monkeypatch.setattr(pushed, "read", lambda _conn, one: made.pushed.get(one.domain, []))
    monkeypatch.setattr(pushed, "write", lambda _conn, one, _lab, values: made.pushed.update({one.domain: values}))
    monkeypatch.setattr(devices, "insert", insert)
    monkeypatch.setattr(devices, "medium", medium)
    monkeypatch.setattr(domains, "is_running", lambda *_: made.runs)
    monkeypatch.setattr(lab_on_site, "NodeScripts", NodeScripts)
    monkeypatch.setattr(drives, "POLL", 0.0)
    monkeypatch.setattr(push, "POLL", 0.0)
    return made


def read_iso(path: Path) -> dict[str, bytes]:
    """The files of an ISO, by their Joliet paths."""
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    found = {}
    try:
        for folder, _, files in iso.walk(joliet_path="/"):
            for file in files:
                place = f"{folder.rstrip('/')}/{file}"
                with iso.open_file_from_iso(joliet_path=place) as reader:
                    found[place.lstrip("/")] = reader.read()
    finally:
        iso.close()
    return found


def allowed(*refused: int) -> Callable[[str], str]:
    """The answer to access reviews; those at the places *refused* are denied."""

    def answer(reviews: str) -> str:
        said = ["true"] * reviews.count("SelfSubjectAccessReview")
        for place in refused:
            said[place] = "false"
        return " ".join(said)

    return answer


class Api(Kubectl):
    """An API server: what kubectl prints, by the beginning of its words.

    A list is answered one by one; a function gets what kubectl read from its input.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__(Path("/kubectl"), Path("/kubeconfig"))
        self.answers_ = {key: list(value) if isinstance(value, list) else value for key, value in answers.items()}
        self.asked: list[tuple[str, str | None]] = []

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        line = " ".join(words)
        self.asked.append((line, stdin))
        for key, value in self.answers_.items():
            if line.startswith(key):
                if isinstance(value, list):
                    value = value.pop(0) if len(value) > 1 else value[0]
                if callable(value):
                    value = value(stdin or "")
                if isinstance(value, Exception):
                    raise value
                return value if isinstance(value, str) else json.dumps(value)
        if "--ignore-not-found" in words or words[0] in ("apply", "delete", "auth"):
            return ""
        raise ClusterError(f"kubectl {line} failed.", why="not found")
