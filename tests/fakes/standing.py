"""An existing lab as inspections see it: everything is as planned until a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import plans
import pytest
import runs

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.overlay.differences import Difference
from winlab.adapters.vm import definitions, devices, domains, first_boot, protected, pushed
from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain as domain_file
from winlab.engine.run import Run
from winlab.engine.state import Kind
from winlab.errors import HostError, NotFoundError, WinlabError
from winlab.events import Progress, Quiet
from winlab.host import fabric, firewall
from winlab.lab_folder import LabFolder
from winlab.operations.drift import clocks, cluster, inspections, nodes
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.steps import cut_off
from winlab.steps.interface import Condition
from winlab.supply.images import cache

POOL = Path("/pool")
CD = "base-kubernetes-{os}-1.iso"


class Pool:
    """Volumes by name: size in MiB, backing, whether complete, content."""

    folder = POOL

    def __init__(self) -> None:
        self.volumes: dict[str, SimpleNamespace] = {}
        self.written: list[str] = []

    def add(self, name: str, *, size: int = 1, backing: str | None = None, content: bytes = cut_off.QCOW2) -> None:
        self.volumes[name] = SimpleNamespace(
            size=size, backing=backing, whole=True, content=content, now="aa", unmarked=False
        )

    def refresh(self) -> None: ...

    def exists(self, name: str) -> bool:
        return name in self.volumes

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.volumes if name.startswith(prefix))

    def capacity(self, name: str) -> int:
        return int(self.volumes[name].size) << 20

    def backing(self, name: str) -> Path | None:
        backing = self.volumes[name].backing
        return None if backing is None else POOL / backing

    def backings(self) -> dict[str, Path]:
        return {name: path for name in self.volumes if (path := self.backing(name)) is not None}

    def download(self, name: str, offset: int = 0, most: int = 1 << 20) -> bytes:
        content: bytes = self.volumes[name].content
        return content[offset:most]

    def is_complete(self, name: str) -> bool:
        return name in self.volumes and bool(self.volumes[name].whole)

    def uploaded_digest(self, name: str) -> str:
        return "" if name in self.volumes and self.volumes[name].unmarked else "aa"

    def digest(self, name: str, tell: Callable[[float], None]) -> str:
        tell(1.0)
        return str(self.volumes[name].now)

    def mark(self, name: str, sha256: str) -> None:
        assert self.volumes[name].now == sha256
        self.volumes[name].whole = True
        self.written.append(f"marker of {name}")

    def restore_base(self, name: str, source: Path, tell: object) -> None:
        del tell
        self.written.append(f"{name} from {source}")
        self.add(name)


class Overlay:
    """OVN, as far as inspections query it."""

    def __init__(self) -> None:
        self.differs: list[Difference] = []
        self.follows = True
        self.up: dict[str, bool] = {}
        self.routes: dict[str, str] = {}
        self.repaired = 0

    def differences(self, _topology: object) -> list[Difference]:
        return self.differs

    def apply(self, _topology: object) -> None:
        self.repaired += 1
        self.differs = [one for one in self.differs if one.foreign]

    def await_followers(self, _seconds: float, _chassis: str) -> None:
        if not self.follows:
            raise HostError("OVN's northd does not follow.", cure="Run setup.")

    def ports_up(self, _lab: str) -> dict[str, bool]:
        return self.up

    def pod_routes(self, _lab: str) -> dict[str, str]:
        return self.routes


class Guest:
    """A node: whether it answers, and its status."""

    def __init__(self) -> None:
        self.answers = True
        self.error: WinlabError | None = None
        self.services = {"containerd": "running", "kubelet": "running"}
        self.joined = True
        self.changed: dict[str, Kind] = {}
        self.ahead = 0.0  # seconds, by its clock
        self.did: list[str] = []

    def condition(self) -> Condition:
        if self.error is not None:
            raise self.error
        return Condition(cast(Any, dict(self.services)), self.joined, dict(self.changed))

    def start(self, service: str, _progress: Progress) -> None:
        self.did.append(f"start {service}")
        self.services[service] = "running"

    def close(self) -> None:
        pass

    def restart_kubelet(self) -> None:
        self.did.append("restart kubelet")


class Standing:
    """The lab. Tests change what it has."""

    def __init__(self, folder: LabFolder, plan: Plan) -> None:
        self.plan = plan
        self.folder = folder
        self.pool = Pool()
        self.overlay = Overlay()
        self.guests = {node.name: Guest() for node in plan.nodes}
        self.states = {node.domain: "running" for node in plan.nodes}
        self.booting: set[str] = set()  # in their first boot, domains
        self.disk_trouble: str | None = None
        self.pushed: dict[str, list[Pushed]] = {}  # own builds of programs, by domain
        self.skew = 0.0  # seconds, by an injected fault
        self.bridge = ""
        self.firewall = ""
        self.plugged: dict[str, str] = {}
        self.api: WinlabError | None = None
        self.rows = {node.name: self._row(node) for node in plan.nodes}
        self.cached: list[Any] = []
        folder.ensure_credentials(plan)
        folder.write(folder.kubeconfig, "x")
        folder.kubectl.symlink_to(folder.kubeconfig)
        self.xml: dict[str, str] = {}
        self.live: dict[str, str] = {}
        for node in plan.nodes:
            self._make(node)

    def _make(self, node: NodePlan) -> None:
        for volume in node.volumes:
            if volume.role in ("disk", "base", "seed"):
                self.pool.add(volume.name, size=volume.capacity_mib or 1, backing=volume.backing)
        payload = CD.format(os=node.os)
        self.pool.add(payload)
        drive, bus = node.system.payload_drive
        text = domain_file.domain_xml(self.plan, node, "secret", POOL)
        # after the first boot: Windows' CDs are out, the payload CD is in
        for volume in node.volumes:
            if volume.role in ("answer", "media"):
                text = text.replace(f'<source file="{POOL / volume.name}"/>', "")
        place = f'<target dev="{drive}" bus="{bus}"/>'
        assert place in text
        text = text.replace(place, f'<source file="{POOL / payload}"/>{place}')
        self.xml[node.domain] = self.live[node.domain] = text
        self.overlay.up[node.port] = True

    def _row(self, node: NodePlan) -> dict[str, Any]:
        number = self.plan.nodes.index(node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
        return {
            "metadata": {"name": node.name, "annotations": {}},
            "spec": {"podCIDR": f"10.244.{number}.0/24"},
            "status": {"conditions": [ready], "addresses": [{"type": "InternalIP", "address": node.address}]},
        }

    def run(self) -> Run:
        """A run of its plan."""
        return runs.run(self.plan, conn="conn", pool=self.pool, folder=self.folder, overlay=self.overlay)

    def subject(self, node: str = "", **changes: Any) -> Subject:
        """What is inspected."""
        chosen = tuple(one for one in self.plan.nodes if node in ("", one.name))
        return Subject(self.run(), chosen, **{"cluster": True, **changes})

    def findings(self, node: str = "", **changes: Any) -> list[Finding]:
        """The differences, with their repairs."""
        return inspections.inspect(self.subject(node, **changes), Quiet())

    def drifts(self, node: str = "", **changes: Any) -> list[Drift]:
        """What differs."""
        return [one.drift for one in self.findings(node, **changes)]

    def change(self, name: str, old: str, new: str, *, live: bool = False) -> None:
        """Change a machine's definition, or its running state, manually."""
        machine = self.plan.node(name).domain
        for texts in (self.live, self.xml) if live else (self.xml,):
            assert old in texts[machine], old
            texts[machine] = texts[machine].replace(old, new)


def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str = "1-1-1", *changes: str) -> Standing:
    """Make everything below inspections read the lab that is returned."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    made = Standing(LabFolder("lab"), plans.make(plans.TCG, source, *changes))

    def nodes_of(_kubectl: object, what: str) -> dict[str, Any]:
        assert what == "nodes"
        if made.api is not None:
            raise made.api
        return {"items": list(made.rows.values())}

    def of(folder: LabFolder) -> Kubectl:
        if not folder.kubeconfig.exists() or not folder.kubectl.exists():
            raise NotFoundError("no cluster")
        return Kubectl(folder.kubectl, folder.kubeconfig)

    def tag_of(_conn: object, one: NodePlan) -> object:
        return tags.of(made.plan, one) if one.domain in made.xml else None

    class Login:
        refusal = None

        def __init__(self, _run: object, node: NodePlan, _own: object) -> None:
            self._guest = made.guests[node.name]

        def answers(self) -> bool:
            return self._guest.answers

    monkeypatch.setattr("winlab.operations.faults.report", lambda *_: None)
    monkeypatch.setattr("winlab.operations.faults.forget_over", lambda *_: None)
    monkeypatch.setattr(fabric, "bridge_trouble", lambda *_: made.bridge)
    monkeypatch.setattr(firewall, "trouble", lambda: made.firewall)
    monkeypatch.setattr(firewall, "restore", lambda _progress: setattr(made, "firewall", ""))
    monkeypatch.setattr(fabric, "guest_ports", lambda: made.plugged)
    monkeypatch.setattr(Kubectl, "of", of)
    monkeypatch.setattr(Kubectl, "get", nodes_of)
    monkeypatch.setattr(domains, "tag_of", tag_of)
    monkeypatch.setattr(protected, "read", lambda *_: None)
    monkeypatch.setattr(pushed, "read", lambda _, one: made.pushed.get(one.domain, []))
    monkeypatch.setattr(domains, "state", lambda _, one: made.states[one.domain])
    monkeypatch.setattr(domains, "is_running", lambda _, one: made.states[one.domain] == "running")
    monkeypatch.setattr(first_boot, "is_marked", lambda _, one: one.domain in made.booting)
    monkeypatch.setattr(domains, "ended_in_order", lambda *_: False)
    monkeypatch.setattr(domains, "disk_trouble", lambda *_: made.disk_trouble)
    monkeypatch.setattr(domains, "name_of", lambda _, one: one.domain)
    monkeypatch.setattr(devices, "inserted", lambda _, one: {"drive": POOL / CD.format(os=one.os)})
    monkeypatch.setattr(definitions, "persistent", lambda _, one: made.xml.get(one.domain))
    monkeypatch.setattr(definitions, "with_secrets", lambda _, one: made.xml.get(one.domain))
    monkeypatch.setattr(
        definitions,
        "running",
        lambda _, one: made.live.get(one.domain) if made.states[one.domain] in ("running", "paused") else None,
    )
    monkeypatch.setattr(definitions, "change", lambda _, one, xml: made.xml.__setitem__(one.domain, xml))
    monkeypatch.setattr(nodes, "Login", Login)
    monkeypatch.setattr(clocks, "connect", lambda tag, *_, **__: made.guests[tag.node])
    monkeypatch.setattr(clocks.clock, "skew", lambda *_: made.skew)
    monkeypatch.setattr(clocks.clock, "difference", lambda guest, _, skew: guest.ahead - skew)
    monkeypatch.setattr(clocks.clock, "settle", lambda guest, *rest: setattr(guest, "ahead", rest[-1]))
    monkeypatch.setattr(nodes.systems, "of", lambda _, node: made.guests[node.name])
    monkeypatch.setattr(cache, "entries", lambda: made.cached)
    monkeypatch.setattr(cache, "verify", lambda *_: None)
    made.overlay.routes = dict(cluster.planned_routes(made.run()) or {})
    return made


def reported(drifts: list[Drift]) -> list[tuple[str, str, str, str, bool]]:
    """What drifts say: the node, what differs, what is expected, what there is, and whether it can be repaired."""
    return [(one.node, one.what, one.expected, one.actual, one.repairable) for one in drifts]


def only(findings: list[Finding]) -> Finding:
    """The only finding."""
    assert len(findings) == 1, [one.drift for one in findings]
    return findings[0]
