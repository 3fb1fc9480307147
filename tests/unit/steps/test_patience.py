"""An API server that is busy for a while ends nothing, and what it is asked for does not wait for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import answers
import plans
import pytest
from day2_fakes import Api

from winlab import run
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.steps import pods, ready

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
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kubectl], Any]:
    clock = iter(range(0, 10_000, 100))
    for module in (pods, ready):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))

    def context(kubectl: Kubectl) -> Any:
        monkeypatch.setattr(Kubectl, "of", lambda _: kubectl)
        return SimpleNamespace(plan=plans.make(plans.TCG, "1-0-1"), state=None, scale=1.0)

    return context


def test_a_pod_network_is_waited_for(asking: Callable[[Kubectl], Any]) -> None:
    rows = {"items": [{"metadata": {"name": "controller-1"}, "spec": {"podCIDR": "10.244.0.0/24"}}]}
    context = asking(Busy(1, rows))
    own = pods.await_share(context, context.plan.nodes[0], Quiet())
    assert own.pod_cidr == "10.244.0.0/24"
    context = asking(Busy(1000, rows))
    with pytest.raises(ClusterError, match="was given no pod network") as caught:
        pods.await_share(context, context.plan.nodes[0], Quiet())
    assert "kubectl get nodes failed" in caught.value.why


def test_cluster_dns_is_waited_for(asking: Callable[[Kubectl], Any]) -> None:
    found = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}
    busy = Busy(1, found)
    step = ready.steps(asking(busy))[-1]
    step.run(Quiet())
    assert busy.failures == 0


def test_a_kubectl_that_does_not_end_is_a_failure_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def overdue(*_: object, **__: object) -> None:
        raise run.OverdueError("'kubectl get' did not end within 20 s.")

    monkeypatch.setattr("winlab.adapters.kube.kubectl.run.run", overdue)
    kubectl = Kubectl(Path("kubectl"), Path("kubeconfig"))
    with pytest.raises(ClusterError, match="did not end"):
        kubectl.run("get", "nodes")
    assert not kubectl.answers()


def test_what_it_warned_of_is_told_even_if_much_happened_since() -> None:
    asked: list[str] = []

    class Events(Api):
        def get(self, *words: str) -> Any:
            asked.extend(words)
            return {"items": [{"type": "Warning", "reason": "BadThing", "message": "it hurts"}]}

    guest = SimpleNamespace(run=lambda call: answers.result(call, {"logs": {}}))
    text = diagnose.explain(Events({}), cast(Any, guest), "node-1")
    assert "event BadThing: it hurts" in text
    assert "--field-selector=involvedObject.name=node-1,type=Warning" in asked
