"""A host with a lab of two machines, on which each change may be the last one that a winlab makes.

Changes are those of volumes, domains, rows, and files in the state folder. Once winlab is *killed*, no further change
has an effect, so nothing is cleaned up. What libvirt keeps doing by itself is not simulated.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import saved
import sites
from pools import MemoryPool

from winlab import files
from winlab.adapters.vm import agent, domains, first_boot, power, protected, save_image
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.domains import Machine, Named
from winlab.design import spec
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.design.plan.tags import Tag
from winlab.design.render import copied_domain
from winlab.engine.step import Step
from winlab.lab_folder import LabFolder
from winlab.operations import faults, recorded, room
from winlab.operations.carry_out import Underway
from winlab.operations.planning import Proposal
from winlab.operations.snapshot import compatible, copying, memory
from winlab.operations.snapshot.required import COPYING
from winlab.snapshots import Id
from winlab.steps.power import answer, clock
from winlab.steps.power.subject import Subject
from winlab.steps.states import ANSWERING, NETWORK


class Killed(BaseException):
    """Not an Exception, so that nothing handles it as an error."""


class Network:
    """OVN, without anything of interest."""

    def labs(self) -> list[str]:
        return []

    def holder(self, _: object) -> None: ...

    def pod_routes(self, _: str) -> dict[str, str]:
        return {}

    def remove(self, _: str) -> bool:
        return False


class World:
    """The host. ``left`` is how many changes winlab still makes; None: it is not killed.

    :param second: there is a second host, and the worker is on it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, second: bool = False) -> None:
        self._lock = threading.RLock()
        self.left: int | None = None
        self.pools = [MemoryPool() for _ in range(1 + second)]
        self.pool = self.pools[0]
        for pool in self.pools:
            pool.on_change = pool.on_delete = self.change
        self.plan = saved.split_plan() if second else saved.plan()
        self.places: dict[str, MemoryPool] = {}
        self.states: dict[str, str] = {}  # by UUID, as everything of machines
        self.xml: dict[str, str] = {}
        self.tags: dict[str, Tag] = {}
        each = [
            sites.hypervisor(sites.idle(pool=pool), pool, name=f"hypervisor-{number}")
            for number, pool in enumerate(self.pools, 1)
        ]
        self.site = sites.FakeSite(*each, overlay=Network())
        self.hosts = self.site.each
        self._patch(monkeypatch)
        self._make_lab()

    def change(self, what: object = None) -> None:
        """Something is about to change."""
        with self._lock:
            if self.left == 0:
                raise Killed(what)
            if self.left is not None:
                self.left -= 1

    @property
    def is_killed(self) -> bool:
        """Whether winlab was killed before it had made all of its changes."""
        return self.left == 0

    def running(self, lab: str) -> bool:
        """Whether both machines of a lab run, on disks that are complete."""
        mine = [uuid for uuid, tag in self.tags.items() if tag.lab == lab]
        files = [(self.places[uuid], Path(file).name) for uuid in mine for file in self._drives(uuid)]
        chains = all(pool.exists(name) and self._is_based(pool, name) for pool, name in files)
        return len(mine) == 2 and chains and {self.states[uuid] for uuid in mine} == {"running"}

    def _drives(self, uuid: str) -> list[str]:
        return list(copied_domain.drives(self.xml[uuid]).values())

    def _is_based(self, pool: MemoryPool, name: str) -> bool:
        while (base := pool.below.get(name)) is not None:
            if not pool.exists(base):
                return False
            name = base
        return True

    def whole(self, which: Id) -> list[str]:
        """The volumes of a snapshot, without those whose base is missing."""
        return [name for pool in self.pools for name in pool.names(f"{which}.") if self._is_based(pool, name)]

    def idle(self) -> set[str]:
        """Disks of labs that nothing needs, and volumes that no finished command leaves."""
        found: set[str] = set()
        for pool in self.pools:
            used = {Path(file).name for uuid in self.xml if self.places[uuid] is pool for file in self._drives(uuid)}
            used |= set(pool.below.values())
            every = {name for name in pool.volumes if "@" not in name and not name.startswith("base-")}
            found |= (every - used) | {name for name in pool.volumes if "export" in name or "restore" in name}
        return found

    def marks(self) -> list[str]:
        """Files that say that a command has not ended."""
        state = LabFolder("x").path.parents[1]
        return [path.name for path in state.rglob("*") if path.name == COPYING or path.suffix in (".held", ".new")]

    def _make_lab(self) -> None:
        plan, folder = self.plan, LabFolder("lab")
        for pool in self.pools:
            pool.put(saved.CD, b"the CD")
            pool.digests[saved.CD] = hashlib.sha256(b"the CD").hexdigest()
        for node in plan.nodes:
            pool = self.pools[int(node.hypervisor[-1]) - 1]
            pool.put(f"base-{node.name}.qcow2", b"base")
            xml = saved.definition(plan, node)
            for file in copied_domain.drives(xml).values():
                name = Path(file).name
                if not pool.exists(name):
                    is_disk = name.endswith("disk.qcow2")
                    pool.put(name, b"content", f"base-{node.name}.qcow2" if is_disk else None)
            self._define(pool, node, xml, tags.of(plan, node))
            self.states[node.uuid] = "running"
        folder.make()
        folder.keep_credentials(plan, saved.secrets())
        recorded.write(folder, Proposal(spec.load("1-1-1", ()), plan, Stock()))

    def add(self, name: str) -> None:
        """Add a machine to the lab, which is like its worker."""
        worker = self.plan.node("node-1")
        xml = saved.definition(self.plan, worker).replace("lab.node-1.", f"lab.{name}.")
        for file in copied_domain.drives(xml).values():
            if not self.pool.exists(Path(file).name):
                self.pool.put(Path(file).name, b"content")
        tag = tags.of(self.plan, worker).model_copy(update={"node": name})
        self._define(self.pool, Machine(f"winlab-lab.{name}", "off", tag), xml, tag)

    def _define(self, pool: MemoryPool, node: Named, xml: str, tag: Tag) -> None:
        self.xml[node.uuid], self.tags[node.uuid], self.places[node.uuid] = xml, tag, pool
        self.states.setdefault(node.uuid, "off")

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(where: object, **named: Any) -> None:
            for name, value in named.items():
                monkeypatch.setattr(where, name, value)

        put(domains, state=lambda _, node: self.states.get(node.uuid, "gone"), name_of=lambda _, node: node.domain)
        put(power, suspend=self._into("suspended"), resume=self._into("running"), cut_power=self._into("off"))
        put(protected, read=lambda *_: None)
        put(domains, machines=self._machines, remove=self._remove, files=self._files)
        put(machines, definition=lambda _, node: self.xml[node.uuid], save=self._save, settle=lambda *_: None)
        put(machines, define=self._redefine, end_save=self._end_save, restore=self._restore)
        put(compatible, _of=lambda _: saved.EMULATOR)
        put(memory, LARGEST_STATE=1 << 16)
        put(first_boot, is_marked=lambda *_: False)
        put(faults, active=lambda *_: [], forget_packets=lambda *_: None)
        put(room, require_for=lambda *_, **__: None)
        put(agent, set_clock=lambda *_: True)
        put(clock, skew=lambda *_: 0.0)
        put(answer, step=_answering)
        put(copying.foundation, steps=lambda run: [Step(NETWORK(run.plan.lab), self.change, lambda: False)])
        standing = SimpleNamespace(machines=list, folder=None)
        put(Underway, lab=property(lambda _: standing))
        write, unlink = files.write_atomic, Path.unlink

        def write_atomic(path: Path, *args: Any, **named: Any) -> None:
            self.change(path)
            write(path, *args, **named)

        def remove(path: Path, missing_ok: bool = False) -> None:
            if path.exists():
                self.change(path)
            unlink(path, missing_ok)

        put(files, write_atomic=write_atomic)
        put(Path, unlink=remove)

    def _into(self, state: str) -> Any:
        def switch(_conn: object, node: Named) -> None:
            self.change(f"{node.domain} {state}")
            self.states[node.uuid] = state

        return switch

    def _machines(self, conn: Any, lab: str | None = None) -> list[Machine]:
        here = [(uuid, tag) for uuid, tag in list(self.tags.items()) if self.places[uuid] is conn.pool]
        rows = [(uuid, tag) for uuid, tag in here if lab in (None, tag.lab)]
        return [Machine(f"winlab-{tag.lab}.{tag.node}", self.states[uuid], tag) for uuid, tag in rows]

    def _remove(self, _conn: object, node: Named) -> bool:
        self.change(f"removing {node.domain}")
        for known in (self.xml, self.tags, self.states):
            known.pop(node.uuid, None)  # type: ignore[attr-defined]
        return True

    def _files(self, conn: Any) -> set[str]:
        return {file for uuid in list(self.xml) if self.places[uuid] is conn.pool for file in self._drives(uuid)}

    def _save(self, conn: Any, node: NodePlan, image: Path, overlays: Mapping[str, Path]) -> None:
        states = {self.states[uuid] for uuid, tag in self.tags.items() if tag.lab == self.tags[node.uuid].lab}
        assert states == {"suspended"}, "all machines are at the same instant"
        pool = conn.pool
        pool.put(image.name, save_image.header(self.xml[node.uuid], "<cookie/>") + b"of an unknown QEMU")
        drives = copied_domain.drives(self.xml[node.uuid])
        for target, file in overlays.items():
            assert not pool.exists(file.name), "libvirt refuses it"
            pool.put(file.name, b"overlay", Path(drives[target]).name)
        self.xml[node.uuid] = copied_domain.redirected(self.xml[node.uuid], overlays)

    def _redefine(self, conn: Any, node: NodePlan, xml: str) -> str:
        self.change(f"defining {node.domain}")
        tag = tags.read(xml)
        assert tag is not None
        self._define(conn.pool, node, xml, tag)
        return xml

    def _end_save(self, conn: object, machine: Machine) -> bool:
        was_paused = self.states[machine.uuid] == "suspended"
        if was_paused:
            power.resume(conn, machine)  # type: ignore[arg-type]
        return was_paused

    def _restore(self, conn: Any, node: NodePlan, image: Path) -> None:
        assert conn.pool.exists(image.name)
        assert self.states[node.uuid] == "off", "libvirt refuses it"
        self.change(f"restoring {node.domain}")
        self.states[node.uuid] = "suspended"


def _answering(subject: Subject) -> Step:
    return Step(ANSWERING(subject.machine.tag.lab, subject.name), lambda _: None, lambda: False)
