"""What inspections report of guests, and of the cluster that they are in."""

from __future__ import annotations

from pathlib import Path

import pytest
import standing
from standing import Standing, only, reported

from winlab.adapters.overlay.differences import Difference
from winlab.errors import ClusterError, GuestError
from winlab.events import Quiet
from winlab.steps.states import (
    BOOTED,
    DRIVE_FREE,
    MEMBER,
    PAYLOAD_INSERTED,
    PREPARED,
    READY,
    ROUTES,
)


def test_clocks(lab: Standing) -> None:
    """A clock that is never set may be a little wrong, and an injected fault is not drift."""
    lab.guests["controller-1"].ahead, lab.guests["node-1"].ahead = 20.0, -3600.0
    (finding,) = lab.findings()
    assert reported([finding.drift]) == [("node-1", "clock", "as the host's", "3600 s behind", True)]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.findings() == []
    lab.skew = 7200.0
    assert {one.drift.actual for one in lab.findings()} == {"7180 s behind", "7200 s behind"}
    lab.guests["controller-1"].ahead = lab.guests["node-1"].ahead = 7200.0
    assert lab.findings() == []


def test_services(lab: Standing) -> None:
    guest = lab.guests["controller-1"]
    guest.services |= {"kubelet": "stopped"}
    lab.guests["node-1"].services |= {"containerd": "absent"}
    first, second = lab.findings()
    assert reported([first.drift, second.drift]) == [
        ("controller-1", "kubelet", "running", "stopped", True),
        ("node-1", "containerd", "running", "absent", True),
    ]
    assert first.tier < second.tier  # a join needs the API server, which a kubelet runs
    assert first.repair is not None
    first.repair(Quiet())
    assert guest.did == ["start kubelet"]
    assert MEMBER in second.steps


def test_a_changed_file_is_reported_before_services(lab: Standing) -> None:
    guest = lab.guests["controller-1"]
    guest.changed = {"/etc/containerd/config.toml": PREPARED}
    guest.services |= {"containerd": "stopped"}
    stopped, changed = lab.findings()
    assert (changed.drift.what, changed.drift.actual, changed.drift.repairable) == (
        "/etc/containerd/config.toml",
        "differs",
        True,
    )
    assert changed.steps == (PAYLOAD_INSERTED, PREPARED)
    assert changed.tier < stopped.tier  # a service may not start because of its configuration


def test_names_from_a_guest_are_printable_and_bounded(lab: Standing) -> None:
    lab.guests["controller-1"].changed = {f"\x1b[2J{number}{'x' * 400}": PREPARED for number in range(300)}
    found = lab.drifts()
    assert len(found) == 200
    assert all("\x1b" not in one.what and len(one.what) <= 300 for one in found)


def test_a_kube_proxy_whose_network_was_recreated_is_restarted(lab: Standing) -> None:
    lab.guests["node-1"].services |= {"kube-proxy": "stale"}
    (finding,) = lab.findings()
    assert reported([finding.drift]) == [("node-1", "kube-proxy", "running", "stale", True)]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.guests["node-1"].did == ["start kube-proxy"]


def test_a_worker_that_is_not_a_member_joins_and_a_controller_is_not_reset(lab: Standing) -> None:
    for guest in lab.guests.values():
        guest.joined = False
    controller, worker = lab.findings()
    assert (controller.drift.node, controller.drift.repairable, controller.steps) == ("controller-1", False, ())
    assert (worker.drift.node, worker.drift.repairable) == ("node-1", True)
    assert MEMBER in worker.steps


def test_a_guest_that_does_not_answer(lab: Standing) -> None:
    lab.guests["node-1"].answers = False
    assert only(lab.findings()).steps == (BOOTED, DRIVE_FREE)
    lab.folder.kubectl.unlink()
    assert [one.what for one in lab.drifts()] == ["kubectl", "login"]  # which is not the reason
    lab.folder.kubectl.symlink_to(lab.folder.kubeconfig)
    lab.overlay.differs = [Difference("NAT x", "there", "")]  # it may be why
    assert [one.what for one in lab.drifts()] == ["NAT x"]
    lab.overlay.differs = []
    lab.guests["node-1"].answers, lab.guests["node-1"].error = True, GuestError("It refused.", cure="Look at it.")
    assert reported(lab.drifts()) == [("node-1", "login", "answers", "It refused.", False)]


def test_a_node_that_the_cluster_has_forgotten(lab: Standing) -> None:
    del lab.rows["node-1"]
    finding = only(lab.findings())
    assert reported([finding.drift]) == [("node-1", "node", "there", "gone", True)]
    assert (READY in finding.steps, finding.lab_steps) == (True, (ROUTES,))
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.guests["node-1"].did == ["restart kubelet"]
    assert lab.drifts("controller-1") == []  # of another node


def test_a_node_that_is_not_ready(lab: Standing) -> None:
    lab.rows["node-1"]["status"]["conditions"][0] |= {"status": "Unknown", "message": "no word from the kubelet"}
    finding = only(lab.findings())
    assert "no word from the kubelet" in finding.drift.actual
    assert finding.steps == (READY,)
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert [one.what for one in lab.drifts()] == ["kubelet"]  # which is why


def test_an_api_server_that_does_not_answer(lab: Standing) -> None:
    lab.api = ClusterError("kubectl get failed.", why="connection refused")
    assert reported(lab.drifts()) == [("", "API server", "answers", "connection refused", True)]
    lab.states["winlab-lab.controller-1"] = "paused"
    assert [one.what for one in lab.drifts()] == ["state"]


def test_routes_to_pods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lab = standing.stand(monkeypatch, tmp_path, "1-1-1", "network.cni=l3")
    assert lab.overlay.routes  # the profile has some
    cidr, hop = lab.overlay.routes.popitem()
    lab.overlay.routes["10.244.99.0/24"] = "10.77.0.99"
    assert reported(lab.drifts()) == [
        ("", f"route to pods {cidr}", hop, "none", True),
        ("", "route to pods 10.244.99.0/24", "none", "10.77.0.99", True),
    ]
    assert {one.lab_steps for one in lab.findings()} == {(ROUTES,)}
