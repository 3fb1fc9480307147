"""The rows that a cluster's add-ons add to ``winlab test readiness``."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from checks_fakes import CONTROLLER, LINUX, STANDIN, WINDOWS, Cluster, access
from distributions import Distribution, install_motd

from winlab.checks import readiness
from winlab.checks.model import Outcome, RowResult
from winlab.errors import ClusterError, UsageError

pytestmark = pytest.mark.usefixtures("fresh_registry")
METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"


class WithAddons(Cluster):
    """A cluster with the ConfigMap that says which add-ons it has, and a metrics API that knows some nodes."""

    def __init__(self, *tags: Any, addons: dict[str, dict[str, Any]], measured: tuple[str, ...] = ()) -> None:
        super().__init__(*tags)
        self.addons, self.measured = addons, measured
        self.silent = 0  # ConfigMap reads that still fail

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        if words[:3] == ("get", "configmap", "winlab-addons"):
            if self.down or self.silent:
                self.silent -= 1
                raise ClusterError("kubectl failed.", why="connection refused")
            data = {name: json.dumps(settings) for name, settings in self.addons.items()}
            return json.dumps({"data": data}) if data else ""
        if words[1] == f"--raw={METRICS}":
            usage = {"cpu": "212345n", "memory": "1033Mi"}
            return json.dumps({"items": [{"metadata": {"name": name}, "usage": usage} for name in self.measured]})
        return super().run(*words, stdin=stdin, limit=limit)


def run(of: Cluster, only: str | None = None, timeout: float | None = 0) -> dict[str, RowResult]:
    made = access(of)
    report = readiness.run("lab", of.tags, made, lambda _event: None, only=only, timeout=timeout)
    return {result.id: result for result in report.results}


ON: dict[str, dict[str, Any]] = {"metrics-server": {"resolution": None}}


def test_metrics_of_all_nodes() -> None:
    cluster = WithAddons(CONTROLLER, LINUX, WINDOWS, addons=ON, measured=("controller-1", "linux-1", "node-1"))
    found = run(cluster, "metrics-server")
    assert list(found) == ["metrics-server", "metrics-server-2"]
    assert {result.outcome for result in found.values()} == {Outcome.PASSED}
    assert found["metrics-server"].detail.startswith("controller-1: CPU 212345n, memory 1033Mi; linux-1: ")
    assert found["metrics-server-2"].detail.startswith("node-1: ")


def test_a_node_without_metrics_is_named() -> None:
    found = run(WithAddons(CONTROLLER, LINUX, WINDOWS, addons=ON, measured=("controller-1",)), "metrics-server")
    assert {result.outcome for result in found.values()} == {Outcome.FAILED}
    assert found["metrics-server"].detail == "there are no metrics for linux-1 yet"
    assert found["metrics-server-2"].detail == "there are no metrics for node-1 yet"


def test_a_stand_in_has_nothing_to_measure() -> None:
    found = run(WithAddons(CONTROLLER, STANDIN, addons=ON, measured=("controller-1",)), "metrics-server")
    assert found["metrics-server"].outcome is Outcome.PASSED
    assert found["metrics-server-2"].outcome is Outcome.REHEARSAL


def test_without_windows() -> None:
    found = run(WithAddons(CONTROLLER, addons=ON, measured=("controller-1",)))
    assert found["metrics-server"].outcome is Outcome.PASSED
    assert found["metrics-server-2"].outcome is Outcome.NOT_APPLICABLE


def test_a_cluster_without_add_ons_has_no_such_rows() -> None:
    assert not set(run(WithAddons(CONTROLLER, addons={}))) & {"add-ons", "metrics-server"}
    assert run(WithAddons(CONTROLLER, addons={}), "metrics-server")["metrics-server"].outcome is Outcome.NOT_APPLICABLE


def test_rows_are_waited_for_until_the_cluster_names_its_add_ons() -> None:
    cluster = WithAddons(CONTROLLER, addons=ON, measured=("controller-1",))
    cluster.silent = 3
    found = run(cluster, "metrics-server", timeout=None)
    assert found["metrics-server"].outcome is Outcome.PASSED
    assert found["metrics-server"].seconds >= 3 * readiness.LOOK


def test_other_gates_ask_for_no_add_ons() -> None:
    cluster = WithAddons(CONTROLLER, addons={"unheard-of": {}})
    assert list(run(cluster, "R1")) == ["R1"]


@pytest.mark.parametrize(
    ("addons", "says"),
    [
        ({"unheard-of": {}}, "The cluster has the add-on 'unheard-of', which is not installed here."),
        ({"metrics-server": {"replicas": 2}}, "replicas"),
    ],
)
def test_unknown_addons_are_reported(addons: dict[str, dict[str, Any]], says: str) -> None:
    found = run(WithAddons(CONTROLLER, addons=addons))
    assert found["add-ons"].outcome is Outcome.FAILED
    assert says in found["add-ons"].detail


def test_only_takes_the_names_of_add_ons() -> None:
    with pytest.raises(UsageError, match="no check 'prometheus'") as error:
        readiness.chosen_gates("R1,prometheus")
    assert "R11, metrics-server" in error.value.cure
    assert readiness.chosen_gates("r1,Metrics-Server") == {"R1", "metrics-server"}


def test_the_rows_of_an_add_on_of_another_package(distribution: partial[Distribution]) -> None:
    install_motd(distribution)
    found = run(WithAddons(CONTROLLER, LINUX, addons={"motd": {"text": "hello"}}), "motd")
    assert found["motd"].outcome is Outcome.PASSED
    assert found["motd"].detail == "2 nodes: hello"
    assert found["motd"].title == "the message can be read"
