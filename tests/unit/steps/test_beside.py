"""The steps of a lab with machines beside its cluster, or without one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import plans
import pytest
import runs
import yaml

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.design.cni.model import NodeNetwork
from winlab.design.plan.model import Plan
from winlab.engine.run import Run
from winlab.engine.step import Step, compose
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.steps import again, amendment, names, pod_network, pods, recipe, sources, states
from winlab.steps.amendment import Amendment
from winlab.steps.sources import Origin, Supply

SUPPLY = Supply(cast(Any, None))
REHEARSAL = "windows-rehearsal"
BESIDE = "{name: agent, os: debian-13, cluster: false}, {name: build, os: windows-rehearsal, cluster: false}"
# as kubeadm writes it
COREFILE = """.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       fallthrough in-addr.arpa ip6.arpa
    }
    forward . /etc/resolv.conf
    reload
}
"""


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "find", lambda *_: None)
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))


class Dns:
    """CoreDNS's ConfigMap."""

    def __init__(self, text: str) -> None:
        self.data: Any = {"Corefile": text}

    def get(self, *_: str) -> Any:
        return {"data": self.data}

    def run(self, *words: str, stdin: str) -> str:
        assert words[:3] == ("patch", "configmap", "coredns")
        self.data = yaml.safe_load(stdin)["data"]
        return ""


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    made = Dns(COREFILE)
    monkeypatch.setattr(Kubectl, "of", lambda _folder: made)
    return made


def beside(*more: str) -> Plan:
    return plans.make(plans.TCG, "1-0-1", f"workers=[{{name: node, os: debian-13}}, {BESIDE}]", *more)


def titles(steps: list[Step], node: str) -> set[str]:
    return {title for step in steps if (title := runs.title_of(step)).endswith(f" {node}")}


def whole(run: Run) -> list[Step]:
    steps = [*recipe.guests(run), *recipe.cluster(run, SUPPLY)]
    compose([*steps, *recipe.golden_upload(run)])
    return steps


def test_machines_beside_boot_and_no_more() -> None:
    steps = whole(runs.run(beside()))
    assert titles(steps, "agent-1") == {f"{verb} agent-1" for verb in ("disk", "seed", "start", "boot")}
    # winlab's own scripts for Windows are on the payload CD
    verbs = ("disk", "answer ISO", "start", "boot", "detach", "insert")
    assert titles(steps, "build-1") == {f"{verb} build-1" for verb in verbs}
    assert "ready node-1" in titles(steps, "node-1")
    assert "names of machines" in map(runs.title_of, steps)


def test_a_lab_without_a_cluster_ends_when_its_machines_answer() -> None:
    plan = plans.make(plans.TCG, "0-1-1", f"workers=[{BESIDE}]")
    found = set(map(runs.title_of, whole(runs.run(plan))))
    assert {"boot agent-1", "boot build-1", "insert build-1", "payload windows"} <= found
    assert not found & {"kubeconfig", "kubectl", "cluster DNS", "pod routes", "names of machines", "payload linux"}


def test_its_golden_image_has_no_kubernetes() -> None:
    plan = plans.make(plans.TCG, "0-1-1", f"workers=[{BESIDE}]")
    run = runs.run(plan)
    steps = compose([*whole(run), *recipe.golden_build(run, plan.builders, SUPPLY, alone=False)])
    found = set(map(runs.title_of, steps))
    assert {"boot golden", "insert golden", "seal golden"} <= found
    assert not found & {"features golden", "containerd golden", "binaries golden"}


def test_nothing_has_to_be_obtained_for_it() -> None:
    plan = plans.make(plans.TCG, "0-1-1", f"workers=[{BESIDE}]")
    supply, why = sources.choose(plan, Origin())
    assert "no cluster" in why
    assert supply.obtain([], Quiet()) == []


def test_cluster_dns_answers_for_the_lab_s_domain_and_short_names(dns: Dns) -> None:
    run = runs.run(beside())
    step = runs.titled(names.steps(run), "names of machines")
    assert step.needs == {states.API("lab")}
    assert not step.done()
    step.run(Quiet())
    text = dns.data["Corefile"]
    assert text.startswith(COREFILE)
    assert "\nlab.winlab.internal:53 controller-1:53 node-1:53 agent-1:53 build-1:53 {\n" in text
    address = run.plan.node("agent-1").address
    assert f"\n        {address} agent-1.lab.winlab.internal agent-1\n" in text
    # a name that it does not know, such as one that a pod searches in the lab's domain, is not a failure
    assert text.endswith("ttl 30\n        fallthrough\n    }\n    forward . /etc/resolv.conf\n}\n# winlab: end\n")
    assert text.count("{") == text.count("}")
    assert step.done()


def test_entries_of_others_stay_and_old_names_go(dns: Dns) -> None:
    more, run = runs.run(beside("workers.agent.count=2")), runs.run(beside())
    dns.data["Corefile"] = names.corefile(more.plan, COREFILE) + "example.org:53 {\n    whoami\n}\n"
    runs.titled(names.steps(run), "names of machines").run(Quiet())
    text = dns.data["Corefile"]
    assert "agent-2" not in text
    assert "example.org:53 {\n    whoami\n}\n" in text
    none = plans.make(plans.TCG, "1-1-1", "workers.os=debian-13")
    assert names.corefile(none, names.corefile(run.plan, COREFILE)) == COREFILE


def test_a_config_map_without_a_corefile_is_reported(dns: Dns) -> None:
    dns.data = None
    run = runs.run(beside())
    step = runs.titled(names.steps(run), "names of machines")
    assert not step.done()
    with pytest.raises(ClusterError, match="no Corefile"):
        step.run(Quiet())


def test_a_lab_with_only_members_does_not_change_cluster_dns() -> None:
    assert names.steps(runs.run(plans.make(plans.TCG, "1-1-1", f"workers.os={REHEARSAL}"))) == []


@pytest.mark.parametrize(("profile", "more"), [("host-gw", True), ("l3", False), ("calico-vxlan", False)])
def test_answers_find_the_way_back_to_pods(profile: str, more: bool) -> None:
    """With host-gw pods send to the lab's network as themselves, and only nodes have routes to them."""
    every = [NodeNetwork("node-1", "linux", "10.77.0.101", "10.244.1.0/24")]
    own = ["workers.os=debian-13", f"network.cni={profile}"]
    plain = pod_network.router_routes(runs.run(plans.make(plans.TCG, "1-1-1", *own)), every)
    pools = "workers=[{name: node, os: debian-13}, {name: agent, os: debian-13, cluster: false}]"
    wider = plans.make(plans.TCG, "1-1-1", pools, f"network.cni={profile}")
    found = pod_network.router_routes(runs.run(wider), every)
    route = {"10.244.1.0/24": "10.77.0.101"}
    assert found == (route if more or profile == "l3" else {})
    assert plain == (route if profile == "l3" else {})


def test_a_removed_machine_is_not_drained_and_loses_its_name(tmp_path: Path) -> None:
    held = LabFolder("lab")
    held.write(held.kubeconfig, "x")
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=debian-13")  # without any machine beside it
    run = runs.run(plan, folder=held)
    gone = Amendment(removed={"agent-1": plan.nodes[-1]}, beside=frozenset({"agent-1"}), reachable=True)
    steps = amendment.compose(run, gone, whole(run), cluster=True)
    found = set(map(runs.title_of, steps))
    assert "names of machines" in found
    assert "remove agent-1" in found
    assert "leave agent-1" not in found
    assert runs.titled(steps, "drain agent-1").done()
    compose(steps)
    # until the guests answer, the API server is asked only if it answers
    assert "names of machines" in map(runs.title_of, amendment.compose(run, gone, [], cluster=False))
    silent = Amendment(removed=gone.removed, beside=gone.beside)
    assert "names of machines" not in map(runs.title_of, amendment.compose(run, silent, [], cluster=False))


def test_a_lab_without_a_cluster_changes_without_one() -> None:
    plan = plans.make(plans.TCG, "0-1-1", "workers.os=debian-13")
    run = runs.run(plan)
    gone = Amendment(removed={"node-2": plan.nodes[-1]}, beside=frozenset({"node-2"}))
    steps = compose(amendment.compose(run, gone, whole(run), cluster=True))
    assert not {"names of machines", "leave node-2"} & set(map(runs.title_of, steps))


def test_only_nodes_get_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, str] = {}

    overlay = SimpleNamespace(set_pod_routes=lambda _lab, routes: written.update(routes))
    run = runs.run(beside("network.cni=host-gw"), guests=lambda node: node, overlay=overlay)
    rows = [
        {"metadata": {"name": node.name}, "spec": {"podCIDR": f"10.244.{number}.0/24"}}
        for number, node in enumerate(run.plan.members)
    ]
    asked: list[str] = []
    monkeypatch.setattr(Kubectl, "of", lambda _folder: SimpleNamespace(get=lambda _: {"items": rows}))
    monkeypatch.setattr(again, "run", lambda there, *_: asked.append(there.name))
    runs.titled(pods.steps(run, SUPPLY), "pod routes").run(Quiet())
    assert asked == ["controller-1", "node-1"]
    assert written == {"10.244.0.0/24": "10.77.0.11", "10.244.1.0/24": "10.77.0.101"}
