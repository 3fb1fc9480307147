"""An existing lab whose machines are in libvirt's own mock of a hypervisor, and whose guests are fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import libvirt
import plans
import pytest
import runs
import sites
from lxml import etree

from winlab.adapters.guests.base import Sink, discard
from winlab.adapters.vm import domains, power
from winlab.adapters.vm.connection import connected
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.engine.lab_on_site import LabOnSite
from winlab.errors import UnreachableError, WinlabError
from winlab.lab_folder import LabFolder
from winlab.steps.power import answer, clock, ready, shutdown, switch
from winlab.steps.power.subject import Subject

LINUX_OFF, WINDOWS_OFF = "sudo systemctl --no-block poweroff", "shutdown.exe /s /f /t 0"
NOW = 1_800_000_000.0


class Pool:
    """A storage pool with serial logs that never change."""

    free_bytes = 0
    folder = "/pool"
    log = b""

    def free(self) -> int:
        return self.free_bytes

    def exists(self, _name: str) -> bool:
        return True

    def refresh(self) -> None:
        pass

    def download(self, _name: str, offset: int = 0, length: int | None = None) -> bytes:
        rest = self.log[offset:]
        return rest if length is None else rest[:length]


@dataclass
class Played:
    """The guests of a lab. ``log`` has every request to them and to their machines."""

    lab: LabOnSite
    log: list[str] = field(default_factory=list)
    behind: dict[str, float] = field(default_factory=dict)  # seconds, by node
    obeys: bool = True  # a shutdown
    stuck: bool = False  # a clock
    problem: Callable[[], WinlabError | None] = lambda: None

    @property
    def conn(self) -> libvirt.virConnect:
        (host,) = self.lab.hypervisors
        return host.conn

    @property
    def pool(self) -> Pool:
        (host,) = self.lab.hypervisors
        return cast(Pool, host.pool)

    def subject(self, node: str) -> Subject:
        there = {one.tag.node: one for one in self.lab.machines()}
        return Subject(self.lab, there[node])

    def domain(self, node: str) -> libvirt.virDomain:
        return self.conn.lookupByName(f"winlab-{self.lab.name}.{node}")

    def connect(self, tag: Tag, _folder: LabFolder, via: str | None = None, timeout: float = 30) -> Guest:
        if (problem := self.problem()) is not None:
            raise problem
        if self.domain(tag.node).state()[0] != libvirt.VIR_DOMAIN_RUNNING:
            raise UnreachableError("it does not answer")
        return Guest(self, tag)

    def press(self, _conn: object, one: domains.Named) -> None:
        self.log.append(f"{one.domain.removeprefix('winlab-lab.')}: power button")
        if self.obeys:
            self.conn.lookupByName(one.domain).destroy()


@dataclass
class Guest:
    """A login to one of them."""

    played: Played
    tag: Tag

    def execute(
        self, command: Sequence[str], stdout: Sink = discard, stderr: Sink = discard, stdin: bytes = b""
    ) -> int:
        (line,) = command
        node = self.tag.node
        behind = self.played.behind.get(node, 0.0)
        if line.startswith("date +") or "UtcNow" in line:
            stdout(f"{round((NOW - behind) * 1000)}\n".encode())
            return 0
        self.played.log.append(f"{node}: {line}")
        if "date" in line.lower():
            if self.played.stuck:
                return 1
            digits = line.split("(")[-1].rstrip('")') if "Set-Date" in line else line.split("'")[1].split()[0]
            self.played.behind[node] = behind - float(digits) / (1000 if "Set-Date" in line else 1)
        elif line in (LINUX_OFF, WINDOWS_OFF) and self.played.obeys:
            self.played.domain(node).destroy()
        return 0

    def close(self) -> None:
        pass


@contextmanager
def lab(monkeypatch: pytest.MonkeyPatch, spec: str = "1-1-1") -> Iterator[Played]:
    """A running lab; time passes in it only by waiting."""
    plan = plans.make(plans.KVM, spec)
    passing = runs.clock(monkeypatch)
    played_time = SimpleNamespace(monotonic=passing.monotonic, sleep=passing.sleep, time=lambda: NOW)
    for module in (answer, clock, ready, shutdown, switch):
        monkeypatch.setattr(module, "time", played_time)
    with connected("test:///default") as conn:
        made = []
        for node in plan.nodes:
            tag = etree.tostring(tags.element(plan, node), encoding="unicode")
            xml = (
                f"<domain type='test'><name>{node.domain}</name><uuid>{node.uuid}</uuid><memory unit='MiB'>512</memory>"
                f"<metadata>{tag}</metadata><os><type>hvm</type></os></domain>"
            )
            made.append(conn.defineXML(xml))
            made[-1].create()
        played = Played(sites.lab(plan.lab, sites.hypervisor(conn, Pool())))
        for module in (answer, shutdown):
            monkeypatch.setattr(module, "connect", played.connect)
        monkeypatch.setattr(power, "press_power", played.press)
        monkeypatch.setattr(domains, "written_bytes", lambda *_: 0)
        try:
            yield played
        finally:
            for domain in made:
                if domain.isActive():
                    domain.destroy()
                domain.undefine()
