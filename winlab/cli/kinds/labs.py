"""Kinds of results about labs and what they consist of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from winlab.cli.kinds.base import MORE, Item, Left


@dataclass(frozen=True)
class LabNode:
    """A node in a list of labs."""

    name: str
    state: str
    autostart: bool


@dataclass(frozen=True, kw_only=True)
class Lab(Item):
    """A lab of this host's site."""

    nodes: list[LabNode]
    left: list[Left]


@dataclass(frozen=True)
class Pushed:
    """A program of a node that the user replaced by a build, and when."""

    program: str
    sha256: str
    at: str


@dataclass(frozen=True, kw_only=True)
class Node(Item):
    """A node of a lab. ``answers`` is null if it was not asked; ``kubernetes`` is empty if that is not known.

    ``protected`` says whether the lab is.
    """

    lab: str
    role: str
    image: str
    state: str
    kubernetes: str
    answers: bool | None
    address: str
    external: str
    problem: str
    autostart: bool
    protected: bool
    hypervisor: str
    user: str
    cluster: bool
    pushed: list[Pushed]
    faults: list[str]


@dataclass(frozen=True, kw_only=True)
class Plan(Item):
    """A plan of a lab, without its secrets. ``host_files`` are the files of this host that nodes get."""

    __pydantic_config__: ClassVar[Any] = MORE

    lab: str
    digest: str
    host: dict[str, Any]
    network: dict[str, Any]
    cluster: dict[str, Any] | None
    nodes: list[dict[str, Any]]
    addons: list[dict[str, Any]]
    host_files: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Power(Item):
    """A node that was switched: its states before and now, and the seconds by which its clock was set."""

    lab: str
    before: str
    state: str
    clock: float


@dataclass(frozen=True, kw_only=True)
class Autostart(Item):
    """Whether a lab starts with the host. ``hint`` says what the host lacks for that."""

    autostart: bool
    nodes: list[str]
    hint: str


@dataclass(frozen=True, kw_only=True)
class Protection(Item):
    """Whether a lab is protected."""

    protected: bool


@dataclass(frozen=True, kw_only=True)
class Push(Item):
    """What ``push`` left on a node, and the version that its kubelet reports."""

    lab: str
    program: str
    sha256: str
    changed: bool
    kubelet: str


@dataclass(frozen=True, kw_only=True)
class ContainerImage(Item):
    """A container image that was loaded, and the nodes that have it."""

    lab: str
    nodes: list[str]


@dataclass(frozen=True, kw_only=True)
class Log(Item):
    """A node's conditions and events, the ends of its logs, and why parts are missing."""

    lab: str
    conditions: list[str]
    events: list[str]
    logs: dict[str, str]
    problems: list[str]


@dataclass(frozen=True, kw_only=True)
class Kubeconfig(Item):
    """A context; either the file that it was merged into, or the kubeconfig itself."""

    lab: str
    file: str = ""
    kubeconfig: str = ""


@dataclass(frozen=True, kw_only=True)
class Move(Item):
    """A node that was moved, and how: ``live``, ``cold``, or ``nothing`` if it was there already."""

    lab: str
    source: str
    target: str
    how: str
    state: str


@dataclass(frozen=True, kw_only=True)
class Drain(Item):
    """A hypervisor that takes no new nodes, or does again, and the nodes that were moved away."""

    drained: bool
    moved: list[Move]


@dataclass(frozen=True)
class Change:
    """A difference from the plan. ``when`` it takes effect: now, at the machine's next start, or never: refused."""

    kind: str
    what: str
    before: str
    after: str
    why: str
    when: str


@dataclass(frozen=True)
class Pending:
    """A running machine that gets other sizes at its next start."""

    node: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Difference(Item):
    """What ``apply`` would change in a lab, or has changed; what is pending; whether a change was interrupted."""

    changes: list[Change]
    pending: list[Pending]
    unfinished: bool
    pushed: dict[str, list[Pushed]]


@dataclass(frozen=True, kw_only=True)
class Drift(Item):
    """A difference between a lab and its plan. The name is that of the node, or of the lab."""

    lab: str
    area: str
    node: str
    what: str
    expected: str
    actual: str
    action: str
    repairable: bool
    repaired: bool


@dataclass(frozen=True, kw_only=True)
class Fault(Item):
    """An injected fault. It is ``unfinished`` if winlab does not know whether it took effect."""

    lab: str
    kind: str
    nodes: list[str]
    settings: dict[str, Any]
    effect: str
    unfinished: bool


@dataclass(frozen=True)
class Part:
    """What a snapshot takes on a hypervisor; null if that does not answer."""

    name: str
    disk_bytes: int | None
    memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Snapshot(Item):
    """A snapshot, LAB@NAME; ``labs`` are its copies. If it is unusable, ``problem`` says why and the rest is null."""

    lab: str
    problem: str
    disk_bytes: int | None
    memory_bytes: int | None
    labs: list[str]
    hypervisors: list[Part]
    made: str | None = None
    made_by: str | None = None
    needs: dict[str, Any] | None = None
    memory: bool | None = None
    paused: float | None = None
    automatic: bool | None = None
    nodes: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Copy(Item):
    """A lab that was made from a snapshot or put back to it. ``resumed``, ``ready``: seconds; 0 if it is off."""

    snapshot: str
    resumed: float
    ready: float
    shared: bool
    fresh_credentials: bool


@dataclass(frozen=True, kw_only=True)
class Archive(Item):
    """An archive for support, and what is missing in it."""

    lab: str
    bytes: int
    missing: list[str]


@dataclass(frozen=True, kw_only=True)
class Explanation(Item):
    """The known causes that a log or an archive shows."""

    file: str
    logs: int
    left: str
    known: int
    causes: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Test(Item):
    """A check of a suite: what ``--only`` takes as its name, and what it checks."""

    suite: str
    title: str
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class TestResult(Item):
    """How a check of a cluster ended, and what was seen."""

    suite: str
    lab: str
    title: str
    source: str
    target: str
    outcome: str
    detail: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Event(Item):
    """An event of a lab's journal, as docs/events.md describes it; the name is its class."""

    __pydantic_config__: ClassVar[Any] = MORE

    event: str
    schema: int
    time: float
    lab: str
    run: str


@dataclass(frozen=True, kw_only=True)
class Run(Item):
    """A run of a lab's journal; the name is its number."""

    __pydantic_config__: ClassVar[Any] = MORE

    lab: str
    number: int
    id: str
    command: str
    state: str
    exit_code: int | None
    seconds: float
    done: int
    total: int
    steps: list[dict[str, Any]]
    critical_path: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class View(Item):
    """A lab at one moment, for those who watch it: who changes it, the run, and what each node is doing."""

    lab: str
    time: float
    worker: dict[str, Any] | None
    run: dict[str, Any] | None
    nodes: list[dict[str, Any]]
    trouble: str
