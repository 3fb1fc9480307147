"""An existing lab without a hypervisor: machines, volumes, a network and a cluster that remember, and a winlab that can
be killed at any of its acts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import sites

from winlab import lab_folder
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import devices, domains, protected, pushed, resources
from winlab.adapters.vm.domains import Machine, Named
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan import make as plans
from winlab.design.plan import tags
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.design.plan.tags import Tag
from winlab.design.render.topology import Topology
from winlab.design.spec.model import Spec
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ClusterError, ConflictError
from winlab.lab_folder import LabFolder
from winlab.operations import golden, making, recorded
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps.amendment import CONTROLLER_TAINT
from winlab.steps.power import shutdown
from winlab.steps.states import MEMBER, NETWORK, STARTED
from winlab.supply.images import library

WRITE = LabFolder.write


class Killed(BaseException):
    """The process is gone: nothing after it happens, not even clean-up."""


@dataclass
class Domain:
    tag: Tag
    sizes: tuple[int, int]
    now: tuple[int, int]
    state: str = "running"


@dataclass
class World:
    """The host, and the acts so far: winlab is killed at the act number *kill*."""

    folder: LabFolder
    facts: HostFacts
    stock: Callable[[Spec], Stock]
    domains: dict[str, Domain] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)
    cluster: dict[str, dict[str, Any]] = field(default_factory=dict)
    network: str = ""
    owner: int | None = None  # of the network
    free: int = 1 << 20
    holder: str = ""
    answers: bool = True
    pushed: dict[str, list[Pushed]] = field(default_factory=dict)  # own builds of programs, by domain
    stuck: bool = False  # pods that can't be moved
    kill: int | None = None
    acts: list[str] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def act(self, what: str) -> Iterator[None]:
        """One act that persists: done completely, or not at all."""
        with self._lock:
            if self.kill is not None and len(self.acts) >= self.kill:
                raise Killed(what)
            yield
            self.acts.append(what)

    def proposal(self, source: str, *changes: str) -> Proposal:
        """The plan of the lab as the command makes it."""
        return self.proposal_of(Spec.load(source, changes))

    def proposal_of(self, spec: Spec) -> Proposal:
        """The plan of a spec."""
        stock = self.stock(spec)
        standing = recorded.standing(self.folder)
        return Proposal(spec, plans.make(spec, self.folder.lab, self.facts, stock, None, standing), stock)

    def seen(self) -> dict[str, Any]:
        """Every part of the lab that persists."""
        return {
            "machines": {name: (one.tag.plan, one.sizes) for name, one in sorted(self.domains.items())},
            "volumes": sorted(self.volumes),
            "cluster": {
                name: {"labels": row["metadata"]["labels"], **row["spec"]} for name, row in sorted(self.cluster.items())
            },
            "network": self.network,
            "record": [plan.digest for plan in recorded.standing(self.folder)],
        }

    def site(self) -> Site:
        """The site that the lab is on."""
        return cast(Site, _Site(self))

    # -- in place of the adapters

    def machines(self, _conn: object, lab: str | None = None) -> list[Machine]:
        return [Machine(name, one.state, one.tag) for name, one in sorted(self.domains.items())]

    def find(self, _conn: object, one: Named) -> object | None:
        return self.domains.get(one.domain)

    def tag_of(self, _conn: object, one: Named) -> Tag | None:
        return self.domains[one.domain].tag if one.domain in self.domains else None

    def state(self, _conn: object, one: Named) -> str:
        return self.domains[one.domain].state if one.domain in self.domains else "gone"

    def is_running(self, conn: object, one: Named) -> bool:
        return self.state(conn, one) == "running"

    def sizes(self, _conn: object, one: Named, *, now: bool = False) -> tuple[int, int]:
        return self.domains[one.domain].now if now else self.domains[one.domain].sizes

    def resize(self, _conn: object, one: Named, cpus: int, memory_mib: int) -> None:
        with self.act(f"resize {one.domain}"):
            self.domains[one.domain].sizes = (cpus, memory_mib)

    def carries(self, _conn: object, one: Named, tag: Tag) -> bool:
        return one.domain in self.domains and self.domains[one.domain].tag == tag

    def set_tag(self, _conn: object, one: Named, tag: Tag) -> None:
        with self.act(f"tag {one.domain}"):
            self.domains[one.domain].tag = tag

    def shut_down(self, _conn: object, one: Named) -> None:
        with self.act(f"shut down {one.domain}"):
            self.domains[one.domain].state = "off"

    def remove(self, _conn: object, one: Named) -> bool:
        with self.act(f"remove {one.domain}"):
            self.cluster.get(one.domain.removeprefix("winlab-lab."), {})["ready"] = False
            return self.domains.pop(one.domain, None) is not None

    def eject(self, _conn: object, one: Named, target: str, bus: str = "sata") -> None:
        with self.act(f"eject {one.domain}"):
            pass

    def delete(self, name: str) -> None:
        with self.act(f"delete {name}"):
            self.volumes.discard(name)

    # -- in place of the recipe's steps, which make a lab

    def recipe(self, run: Run) -> list[Step]:
        def network(_: object) -> None:
            with self.act("network"):
                self.network = run.plan.digest

        net = Step(NETWORK(run.lab), network, lambda: self.network == run.plan.digest)
        return [net, *(step for node in run.plan.nodes for step in self._machine(run.plan, node))]

    def _machine(self, plan: Plan, node: NodePlan) -> list[Step]:
        sizes = (node.cpus, node.memory_mib)

        def start(_: object) -> None:
            volume = f"{plan.lab}.{node.name}.disk.qcow2"
            if volume not in self.volumes:
                with self.act(f"disk {node.name}"):
                    self.volumes.add(volume)
            with self.act(f"start {node.name}"):
                one = self.domains.setdefault(node.domain, Domain(tags.of(plan, node), sizes, sizes))
                one.state, one.now = "running", one.sizes

        def join(_: object) -> None:
            row = self.cluster.get(node.name)
            assert row is None or not row.get("ready", True), "kubeadm refuses a name that a Ready node has"
            with self.act(f"join {node.name}"):
                taint = node.role == "controller" and any(one.role == "worker" for one in plan.linux_nodes())
                self.cluster[node.name] = {
                    "metadata": {"labels": plan.labels(node)},
                    "spec": {"taints": [{"key": CONTROLLER_TAINT}]} if taint else {},
                    "made": node.name,
                }

        return [
            Step(STARTED(plan.lab, node.name), start, lambda: self.is_running(None, node), [NETWORK(plan.lab)]),
            Step(
                MEMBER(plan.lab, node.name),
                join,
                lambda: self.cluster.get(node.name, {}).get("ready", node.name in self.cluster),
                [STARTED(plan.lab, node.name)],
            ),
        ]


class _Pool:
    def __init__(self, world: World) -> None:
        self._world = world

    def refresh(self) -> None:
        pass

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self._world.volumes if name.startswith(prefix))

    def backings(self) -> dict[str, Path]:
        return {}

    def delete(self, name: str) -> bool:
        self._world.delete(name)
        return True


class _Northbound:
    def __init__(self, world: World) -> None:
        self._world = world

    def lab_owner(self, _lab: str) -> int | None:
        return self._world.owner

    def has(self, topology: Topology) -> bool:
        return self._world.network == topology.external_ids[tags.KEY_PLAN]

    def taken(self, _lab: str) -> set[str]:
        return set()

    def require_free(self, _topology: Topology) -> None:
        if self._world.holder:
            raise ConflictError(f"The lab '{self._world.holder}' already has the external address.")


class _Site:
    def __init__(self, world: World) -> None:
        self._world = world

    @contextmanager
    def hypervisors(self) -> Iterator[Hypervisors]:
        yield Hypervisors((sites.hypervisor(pool=_Pool(self._world)),))

    storage = hypervisors

    @contextmanager
    def overlay(self) -> Iterator[_Northbound]:
        yield _Northbound(self._world)

    def in_use(self) -> AbstractContextManager[None]:
        return nullcontext()

    def folder(self, lab: str) -> LabFolder:
        return LabFolder(lab) if lab.startswith(golden.GOLDEN) else self._world.folder

    def folders(self) -> list[str]:
        return lab_folder.labs()


class Cluster(Kubectl):
    """The API server of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def answers(self) -> bool:
        return self._world.answers

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        world = self._world
        if not world.answers:
            raise ClusterError("kubectl failed.", why="connection refused")
        match words:
            case ("drain", name, *flags):
                world.asked.append(words)
                with world.act(f"drain {name}"):
                    world.cluster[name]["spec"]["unschedulable"] = True
                if world.stuck:
                    raise ClusterError("kubectl drain failed.", why=f"cannot evict pod, with {len(flags)} flags")
            case ("delete", "node", name, *_):
                with world.act(f"leave {name}"):
                    world.cluster.pop(name, None)
            case ("label", "node", name, word, *_):
                key, sign, value = word.partition("=")
                with world.act(f"label {name}"):
                    labels = world.cluster[name]["metadata"]["labels"] = dict(world.cluster[name]["metadata"]["labels"])
                    labels.pop(key.removesuffix("-"), None)
                    if sign:
                        labels[key] = value
            case ("taint", "node", name, word):
                with world.act(f"taint {name}"):
                    world.cluster[name]["spec"].pop("taints", None)
                    if not word.endswith("-"):
                        world.cluster[name]["spec"]["taints"] = [{"key": CONTROLLER_TAINT}]
            case ("uncordon", name):
                with world.act(f"uncordon {name}"):
                    world.cluster[name]["spec"].pop("unschedulable", None)
            case _:
                raise AssertionError(words)
        return ""

    def get(self, *words: str) -> Any:
        if not self._world.answers:
            raise ClusterError("kubectl failed.", why="connection refused")
        assert words[0] == "nodes"
        name = words[1].rpartition("=")[2]
        return {"items": [self._world.cluster[name]] if name in self._world.cluster else []}

    def delete(self, objects: Sequence[dict[str, Any]]) -> None:
        with self._world.act(f"delete {len(objects)} objects"):
            self._world.volumes.add("objects deleted")

    def has_any(self, objects: Sequence[dict[str, Any]]) -> bool:
        return "objects deleted" not in self._world.volumes


def world(
    monkeypatch: pytest.MonkeyPatch, folder: LabFolder, facts: HostFacts, stock: Callable[[Spec], Stock]
) -> World:
    """A host on which ``create`` and ``apply`` do everything but make real things."""
    made = World(folder, facts, stock)
    names = "machines find tag_of state is_running sizes resize carries set_tag remove"
    for name in names.split():
        monkeypatch.setattr(domains, name, getattr(made, name))
    monkeypatch.setattr(resources, "free_memory_mib", lambda _conn: made.free)
    monkeypatch.setattr(domains, "files", lambda _conn: set())
    monkeypatch.setattr(protected, "read", lambda *_: None)
    monkeypatch.setattr(pushed, "read", lambda _conn, one: made.pushed.get(one.domain, []))
    monkeypatch.setattr(making.recipe, "guests", made.recipe)
    monkeypatch.setattr(making.recipe, "golden_upload", lambda *_: [])
    monkeypatch.setattr(making.faults, "report", lambda *_: None)
    monkeypatch.setattr(making.faults, "forget_over", lambda *_: None)
    monkeypatch.setattr(devices, "eject", made.eject)
    monkeypatch.setattr(devices, "inserted", lambda *_: {})
    monkeypatch.setattr(LabFolder, "credentials", lambda _: None)
    monkeypatch.setattr(LabFolder, "credentials_fit", lambda *_: True)
    monkeypatch.setattr(shutdown, "shut_down", lambda subject, _: made.shut_down(None, subject))
    monkeypatch.setattr(making, "all_made", lambda *_, **__: True)
    monkeypatch.setattr(golden, "check_media", lambda *_args, **_flags: None)
    monkeypatch.setattr(golden, "lacking", lambda *_: ())
    monkeypatch.setattr(library, "imported_for", lambda _plan: [])
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _folder: Cluster(made)))

    def counted(self: LabFolder, path: Any, text: str, mode: int = 0o600) -> None:
        with made.act(f"write {path.name}"):
            WRITE(self, path, text, mode)

    monkeypatch.setattr(LabFolder, "write", counted)
    return made
