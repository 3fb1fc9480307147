"""``winlab status``: it fits 80 columns, and Kubernetes' own view is beside the machine's."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import lab_fakes
import pytest

from winlab import Lab
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm.hypervisor import Silent
from winlab.adapters.vm.pushed import Pushed
from winlab.cli import status_view, table
from winlab.design import fault
from winlab.errors import ClusterError, HostError
from winlab.operations import look
from winlab.operations.lab_hosts import HostStatus
from winlab.operations.look import LabFacts, NodeStatus

OWN = Pushed("kubelet", "c03ecf60" * 8, "12:54")
ABOUT = LabFacts("v1.37.2", "l3", time.time() - 7200, {"node-1": 2048})


def status(node: str, **about: Any) -> NodeStatus:
    machine = lab_fakes.machine(node, "linux" if node.startswith("c") else "windows")
    tag = machine.tag.model_copy(update={"address": "10.77.0.101", "floating": "172.31.247.130"})
    return (
        NodeStatus(tag, "running", True, kubernetes="Ready")
        if not about
        else replace(NodeStatus(tag, "running", True, kubernetes="Ready"), **about)
    )


CONTROLLER = status("controller-1")
NODES = [CONTROLLER, status("node-1", kubernetes="NotReady", pushed=(OWN,))]


@pytest.fixture(autouse=True)
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "about", lambda _: ABOUT)
    monkeypatch.setattr(Lab, "left", lambda _: ())
    monkeypatch.setattr(Lab, "protected_by", lambda _: None)
    monkeypatch.setenv("COLUMNS", "80")


def test_it_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    status_view.show(Lab("lab"), NODES, [fault.make("loss", ["node-1"], percent=20)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "lab   1 of 2 nodes Ready   Kubernetes v1.37.2   l3   made 2 h ago",
        "NODE          STATE    KUBERNETES  FROM HOST       NOTES",
        "controller-1  running  Ready       172.31.247.130",
        "node-1        running  NotReady    172.31.247.130  own kubelet; fault: loss",
    ]
    assert "kubelet is your own build (c03ecf60" in lines[4]
    assert all(len(line) <= 80 for line in lines)


def test_a_lab_that_is_well_has_no_notes_and_room_for_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    status_view.show(Lab("lab"), [CONTROLLER], [])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "NODE          STATE    KUBERNETES  ADDRESS      FROM HOST",
        "controller-1  running  Ready       10.77.0.101  172.31.247.130",
    ]


def test_wide_has_everything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    token = table.wide.set(True)
    try:
        status_view.show(Lab("lab"), NODES, [])
    finally:
        table.wide.reset(token)
    row = capsys.readouterr().out.splitlines()[3].split("  ")
    assert [cell.strip() for cell in row if cell][4:] == ["172.31.247.130", "worker", "x", "2 GiB", "own kubelet"]


def test_hosts_are_shown_if_there_are_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = [
        HostStatus("hypervisor-1", "answers", ("controller-1",), 8192, 1536),
        HostStatus("big", "answers", ("node-1", "node-2"), 65536, 40000),
    ]
    monkeypatch.setattr(Lab, "hypervisors", lambda *_, ask: hosts if ask else [])
    status_view.show(Lab("lab"), [CONTROLLER, status("node-1", hypervisor="big")], [])
    _, head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NODE", "ON", "STATE", "KUBERNETES", "ADDRESS", "FROM", "HOST"]
    assert rows[2:] == [
        "HYPERVISOR    STATE    NODES           MEMORY    FREE",
        "hypervisor-1  answers  controller-1    8.0 GiB   1.5 GiB",
        "big           answers  node-1, node-2  64.0 GiB  39.1 GiB",
    ]


def test_a_host_that_was_silent_is_not_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    lab, gone = Lab("lab"), status("node-1", hypervisor="big", state="unknown", answers=None, problem="'big' is off.")
    lab.site.silent = (Silent("big", HostError("ssh ended.")),)
    status_view.show(lab, [CONTROLLER, gone], [])
    assert capsys.readouterr().out.splitlines()[4:7] == [
        "HYPERVISOR    STATE    NODES",
        "hypervisor-1  answers  controller-1",
        "big           unknown  node-1",
    ]


@pytest.mark.parametrize(
    ("about", "notes"),
    [
        ({"answers": False, "problem": "no ssh"}, "does not answer"),
        ({"problem": "Its clock is 99 s behind"}, "wrong clock"),
        ({"state": "lost", "answers": None, "problem": "gone"}, "see below"),
        ({"state": "off", "answers": None}, ""),
    ],
)
def test_notes_are_short(about: dict[str, Any], notes: str) -> None:
    assert status_view.notes(status("node-1", **about), []) == notes


def test_without_an_answer_of_kubernetes_the_nodes_that_answer_are_counted() -> None:
    off = [replace(one, kubernetes="", answers=None) for one in NODES]
    assert status_view.headline("lab", off, LabFacts(), 0.0) == "lab   0 of 2 nodes answer"
    joined = LabFacts(attachment="attached")
    assert status_view.headline("lab", off, joined, 0.0) == "lab   0 of 2 nodes answer   attached"
    silent = [replace(one, kubernetes="") for one in NODES]
    assert status_view.headline("lab", silent, LabFacts(made=0.0), 260000.0) == (
        "lab   2 of 2 nodes answer   made 3 days ago"
    )


def test_kubernetes_is_asked_only_if_a_controller_runs_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """ux N14: it waited 30 s for the API server of a lab that is off."""
    asked = []

    class Cluster(Kubectl):
        def __init__(self) -> None:
            pass

        def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
            asked.append(limit)
            if len(asked) > 1:
                raise ClusterError("i/o timeout")
            ready = '{"type": "Ready", "status": "True"}'
            return f'{{"items": [{{"metadata": {{"name": "a"}}, "status": {{"conditions": [{ready}]}}}}]}}'

    monkeypatch.setattr(look, "kubectl", lambda _: Cluster())
    running, off = lab_fakes.machine("controller-1"), lab_fakes.machine("controller-1", state="off")
    folder: Any = None
    assert look._readiness(folder, [off]) == {}
    assert asked == []
    assert look._readiness(folder, [running]) == {"a": "Ready"}
    assert look._readiness(folder, [running]) == {}
    assert asked == [look.API_LIMIT] * 2
