"""An API server that is busy for a while ends nothing, and a request to it does not wait forever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import answers
import plans
import pytest
import runs
from lab_fakes import Api

from winlab import files, run
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import crash, domains
from winlab.adapters.vm.crash import Crash
from winlab.design.catalog.artifact import Obtained
from winlab.design.cni.model import Patch
from winlab.design.system import WINDOWS
from winlab.engine.run import Run
from winlab.errors import ClusterError, GuestError, HostError
from winlab.events import Quiet
from winlab.steps import pod_network, pods, ready
from winlab.steps.apply import apply
from winlab.steps.distribution import access
from winlab.steps.sources import Supply

BUSY = ClusterError("kubectl get nodes failed.", why="etcdserver: request timed out")


class Busy(Kubectl):
    """It fails so many times, and answers then."""

    def __init__(self, failures: int, answer: Any) -> None:
        super().__init__(Path("kubectl"), Path("kubeconfig"))
        self.failures = failures
        self.answer = answer

    def get(self, *words: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise BUSY
        return self.answer


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kubectl], Run]:
    runs.clock(monkeypatch)
    monkeypatch.setattr(crash, "read", lambda *_: None)
    monkeypatch.setattr(domains, "state", lambda *_: "running")

    def run(kubectl: Kubectl) -> Run:
        monkeypatch.setattr(Kubectl, "of", lambda _: kubectl)
        return runs.run(plans.make(plans.TCG, "1-1-1"), guest=SimpleNamespace(run=lambda *_: SimpleNamespace(logs={})))

    return run


class Kubelet(Kubectl):
    """It reports something else each time, so many times, and then the same forever."""

    def __init__(self, reports: int) -> None:
        super().__init__(Path("kubectl"), Path("kubeconfig"))
        self.reports = reports
        self.asked = 0

    def get(self, *words: str) -> Any:
        if words[0] != "node":
            return {"items": []}
        self.asked += 1
        images = [{"names": [f"image-{n}"]} for n in range(min(self.asked, self.reports))]
        beat = {"type": "Ready", "status": "False", "message": "no network", "lastHeartbeatTime": str(self.asked)}
        return {"status": {"conditions": [beat], "images": images}}


def test_a_node_is_waited_for_as_long_as_its_kubelet_makes_progress(asking: Callable[[Kubectl], Run]) -> None:
    """Images come one by one, for longer than a silent node would be given; its reports alone are not enough."""
    kubelet = Kubelet(reports=600)
    with pytest.raises(ClusterError, match="does not become Ready") as caught:
        runs.titled(ready.steps(asking(kubelet)), "ready node-1").run(Quiet())
    silent = WINDOWS.ready_silence / 3.0
    assert 600 + silent <= kubelet.asked <= 600 + silent + 3
    assert "no network" in caught.value.why


def test_a_node_that_crashed_is_not_waited_for(
    asking: Callable[[Kubectl], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = Kubelet(reports=600)
    run_ = asking(kubelet)
    monkeypatch.setattr(crash, "read", lambda *_: Crash(0x50))
    with pytest.raises(GuestError, match="PAGE_FAULT_IN_NONPAGED_AREA"):
        runs.titled(ready.steps(run_), "ready node-1").run(Quiet())
    assert kubelet.asked == 0


def test_a_pod_network_is_waited_for(asking: Callable[[Kubectl], Run]) -> None:
    rows = {"items": [{"metadata": {"name": "controller-1"}, "spec": {"podCIDR": "10.244.0.0/24"}}]}
    run_ = asking(Busy(1, rows))
    own = pod_network.await_share(run_, run_.plan.nodes[0], Quiet())
    assert own.pod_cidr == "10.244.0.0/24"
    run_ = asking(Busy(1000, rows))
    with pytest.raises(ClusterError, match="was given no pod network") as caught:
        pod_network.await_share(run_, run_.plan.nodes[0], Quiet())
    assert "kubectl get nodes failed" in caught.value.why


def test_cluster_dns_is_waited_for(asking: Callable[[Kubectl], Run]) -> None:
    found = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}
    busy = Busy(1, found)
    runs.titled(ready.steps(asking(busy)), "cluster DNS").run(Quiet())
    assert busy.failures == 0


@pytest.mark.parametrize("state", ["off", "crashed", "gone"])
def test_an_api_server_whose_machine_has_ended_is_not_waited_for(
    asking: Callable[[Kubectl], Run], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    run_ = asking(Busy(1_000_000, {}))
    monkeypatch.setattr(Kubectl, "run", lambda *_, **__: (_ for _ in ()).throw(BUSY))
    monkeypatch.setattr(domains, "state", lambda _conn, one: "running" if one.name == "node-1" else state)
    kubectl = Kubectl.of(run_.folder)
    for waits in (
        lambda: pod_network.await_share(run_, run_.plan.nodes[0], Quiet()),
        lambda: apply(kubectl, [{"kind": "Namespace"}], run_, Quiet()),
        lambda: pods._await_kinds(run_, kubectl, Quiet()),
        lambda: pods._patch(run_, kubectl, Patch("x", "y", {}), Quiet()),
        lambda: access._await_api(run_, Quiet()),
        lambda: runs.titled(ready.steps(run_), "ready node-1").run(Quiet()),
        lambda: runs.titled(ready.steps(run_), "cluster DNS").run(Quiet()),
    ):
        with pytest.raises(GuestError, match=f"'controller-1' is {state}") as caught:
            waits()
        assert "starts the machine" in caught.value.cure


def test_a_libvirt_that_restarts_does_not_end_the_wait(
    asking: Callable[[Kubectl], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(*_: object) -> str:
        raise HostError("libvirt does not answer.")

    busy = Busy(2, {"status": {"conditions": [{"type": "Available", "status": "True"}]}})
    run_ = asking(busy)
    monkeypatch.setattr(domains, "state", state)
    runs.titled(ready.steps(run_), "cluster DNS").run(Quiet())
    assert busy.failures == 0


def test_a_kubectl_that_does_not_end_is_a_failure_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def overdue(*_: object, **__: object) -> None:
        raise run.OverdueError("'kubectl get' did not end within 20 s.")

    monkeypatch.setattr("winlab.adapters.kube.kubectl.run.watched", overdue)
    kubectl = Kubectl(Path("kubectl"), Path("kubeconfig"))
    with pytest.raises(ClusterError, match="did not end"):
        kubectl.run("get", "nodes")
    assert not kubectl.answers()


def test_warnings_are_reported_even_after_many_other_events() -> None:
    asked: list[str] = []

    class Events(Api):
        def get(self, *words: str) -> Any:
            asked.extend(words)
            return {"items": [{"type": "Warning", "reason": "BadThing", "message": "it hurts"}]}

    guest = SimpleNamespace(run=lambda call: answers.result(call, {"logs": {}}))
    text = diagnose.explain(Events({}), cast(Any, guest), "node-1")
    assert "event BadThing: it hurts" in text
    assert "--field-selector=involvedObject.name=node-1,type=Warning" in asked


class Crds(Kubectl):
    """An API server that serves one more of its new kinds at each look, and that may stop at it."""

    def __init__(self, stops_at: int) -> None:
        super().__init__(Path("kubectl"), Path("kubeconfig"))
        self.stops_at = stops_at
        self.looks = 0
        self.applied: list[Any] = []

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        if words[0] == "get":
            self.looks += 1
            served = min(self.looks, self.stops_at)
            return "\n".join(f"kind-{n}={'True' if n < served else ''}" for n in range(200))
        return ""

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        self.applied.append(objects)


@pytest.mark.parametrize(("stops_at", "fails"), [(200, False), (20, True)])
def test_new_kinds_are_waited_for_as_long_as_more_are_served(
    asking: Callable[[Kubectl], Run], tmp_path: Path, stops_at: int, fails: bool
) -> None:
    """200 queries are 600 seconds, far more than may pass without progress."""
    file = tmp_path / "crds.yaml"
    file.write_text("kind: CustomResourceDefinition\n")
    source = SimpleNamespace(
        obtain_all=lambda wanted, _: [Obtained(one, file, files.sha256(file), 1, "upstream") for one in wanted]
    )
    crds = Crds(stops_at)
    objects = runs.titled(pods.steps(asking(crds), Supply(cast(Any, source))), "cluster objects")
    if fails:
        with pytest.raises(ClusterError, match="does not serve all kinds") as caught:
            objects.run(Quiet())
        assert "kind-199" in caught.value.why
        assert crds.looks < 20 + pods.KINDS_SILENCE
    else:
        objects.run(Quiet())
        assert crds.looks == 200
