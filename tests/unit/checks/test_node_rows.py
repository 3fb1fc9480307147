"""The rows about node objects, leases and routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import runs
from checks_fakes import CONTROLLER, HYBRID, Cluster, rows, runtime_class, tag

from winlab.checks import node_rows
from winlab.checks.model import Outcome
from winlab.design.render import nodes
from winlab.errors import HostError


@pytest.mark.parametrize(
    ("row", "path", "value", "why"),
    [
        ("N1", ("status", "conditions"), [{"type": "Ready", "status": "False", "reason": "NoCNI"}], "not Ready: NoCNI"),
        ("N1", ("metadata", "labels"), {"kubernetes.io/os": "windows"}, "no label node.kubernetes.io/windows-build"),
        ("N2", ("spec", "taints"), [], "does not have os=windows:NoSchedule"),
        ("N3", ("status", "addresses"), [{"type": "InternalIP", "address": "1.2.3.4"}], "instead of 10.77.0.101"),
        ("N4", ("status", "nodeInfo"), {"kubeletVersion": "v1.35.0"}, "its kubelet is v1.35.0"),
        ("N4", ("status", "nodeInfo"), {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "docker://1"}, "docker://1"),
    ],
)  # fmt: skip
def test_a_misconfigured_windows_node(row: str, path: tuple[str, str], value: Any, why: str) -> None:
    cluster = Cluster(*HYBRID)
    cluster.nodes["node-1"][path[0]][path[1]] = value
    outcome, detail = rows(cluster, row)[row]
    assert outcome is Outcome.FAILED
    assert why in detail


def test_a_node_without_a_taint_on_purpose() -> None:
    """By workers.taint=none: its label says so."""
    cluster = Cluster(*HYBRID)
    cluster.nodes["node-1"]["spec"]["taints"] = []
    cluster.nodes["node-1"]["metadata"]["labels"][nodes.BARE] = "true"
    assert rows(cluster, "N2")["N2"] == (Outcome.PASSED, "node-1: none, as the spec says")


def test_three_releases_are_distinguished() -> None:
    """Each by its build; a node of another release than its image's can't be relied on."""
    names = {"2019": "windows-rehearsal-2019", "2022": "windows-rehearsal", "2025": "windows-rehearsal-2025"}
    workers = [tag(f"w{one}", "windows", image=image, number=100 + int(one[2:])) for one, image in names.items()]
    cluster = Cluster(CONTROLLER, *workers)
    cluster.classes = [runtime_class(release) for release in names]
    found = rows(cluster, "N1,N6")
    assert found["N1"] == (Outcome.PASSED, "w2019: 10.0.17763; w2022: 10.0.20348; w2025: 10.0.26100")
    assert found["N6"] == (Outcome.PASSED, "w2019: windows-2019; w2022: windows-2022; w2025: windows-2025")
    cluster.nodes["w2025"]["metadata"]["labels"]["node.kubernetes.io/windows-build"] = "10.0.20348"
    outcome, detail = rows(cluster, "N1")["N1"]
    assert outcome is Outcome.FAILED
    assert detail == "w2025: its build is 10.0.20348, but windows-rehearsal-2025 is 10.0.26100"


def test_a_node_that_never_joined() -> None:
    cluster = Cluster(*HYBRID)
    del cluster.nodes["node-1"]
    assert rows(cluster, "N1")["N1"] == (Outcome.FAILED, "node-1: the cluster has no node 'node-1'")


def leases(cluster: Cluster, renewed: Callable[[str], int | None]) -> None:
    """Let *renewed* say at which second a node renewed its lease; None: it has none."""

    def listed(what: str, words: tuple[str, ...]) -> dict[str, Any]:
        if not what.startswith("leases"):
            return Cluster._list(cluster, what, words)
        at = {name: second for name in cluster.nodes if (second := renewed(name)) is not None}
        times = {name: f"2026-11-21T10:00:{second:02d}Z" for name, second in at.items()}
        return {"items": [{"metadata": {"name": name}, "spec": {"renewTime": time}} for name, time in times.items()]}

    cluster._list = listed  # type: ignore[method-assign]


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_lease_that_is_not_renewed(clock: runs.Clock, scale: float) -> None:
    cluster, begun = Cluster(*HYBRID), clock.now
    leases(cluster, lambda _: 0)
    outcome, detail = rows(cluster, "N5", scale=scale)["N5"]
    assert outcome is Outcome.FAILED
    assert detail == "node-1: its lease was last renewed at 2026-11-21 10:00:00+00:00"
    assert clock.now - begun > node_rows.LEASE_SILENCE * scale  # an emulated kubelet may take as much longer


def test_nodes_that_renew_their_leases_one_after_the_other_are_waited_for(clock: runs.Clock) -> None:
    late = [tag(f"node-{number}", "windows", number=100 + number) for number in (1, 2, 3)]
    cluster, begun = Cluster(CONTROLLER, *late), clock.now

    def renewed(name: str) -> int:
        after = node_rows.LEASE_SILENCE * 0.8 * int(name[-1])
        return 7 if clock.now - begun > after else 0

    leases(cluster, renewed)
    detail = "node-1: renewed 7 s later; node-2: renewed 7 s later; node-3: renewed 7 s later"
    assert rows(cluster, "N5")["N5"] == (Outcome.PASSED, detail)
    assert clock.now - begun > 2 * node_rows.LEASE_SILENCE


def test_a_lease_that_is_missing_or_vanishes(clock: runs.Clock) -> None:
    cluster, begun = Cluster(*HYBRID), clock.now
    leases(cluster, lambda name: None if name == "node-1" else 0)
    assert rows(cluster, "N5")["N5"] == (Outcome.FAILED, "no lease of node-1")
    assert clock.now == begun
    leases(cluster, lambda _: 0 if clock.now == begun else None)
    assert "last renewed at" in rows(cluster, "N5")["N5"][1]


def test_without_a_runtime_class_the_pod_brings_the_toleration_itself() -> None:
    cluster = Cluster(*HYBRID)
    cluster.classes = []
    found = rows(cluster, "N6,N7")
    assert found["N6"][0] is Outcome.FAILED
    assert found["N7"] == (Outcome.PASSED, "on node-1 by its own toleration, and runs")


def test_routes() -> None:
    right = {"10.244.0.0/24": "10.77.0.11", "10.244.1.0/24": "10.77.0.51", "10.244.2.0/24": "10.77.0.101"}
    assert rows(Cluster(*HYBRID), "N8", routes=lambda: right)["N8"][0] is Outcome.PASSED
    wrong = {**right, "10.244.1.0/24": "10.77.0.11"}
    assert "of linux-1 goes to 10.77.0.11" in rows(Cluster(*HYBRID), "N8", routes=lambda: wrong)["N8"][1]
    assert rows(Cluster(*HYBRID), "N8", routes=lambda: {})["N8"][0] is Outcome.NOT_APPLICABLE

    def no_ovn() -> dict[str, str]:
        raise HostError("There is no OVN.")

    assert rows(Cluster(*HYBRID), "N8", routes=no_ovn)["N8"] == (Outcome.FAILED, "There is no OVN.")
