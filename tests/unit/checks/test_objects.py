"""What counts as progress in a cluster's objects."""

from __future__ import annotations

from typing import Any

from winlab.checks.objects import signs


def pod(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    row = {"name": "main", "state": state, **more}
    metadata = {"name": name, "generateName": "web-"}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running", "containerStatuses": [row]}}


def test_another_state_of_a_container_is_new() -> None:
    assert signs([pod("web-a", {"running": {}})]) != signs([pod("web-a", {"waiting": {"reason": "PodInitializing"}})])


def test_a_restart_at_another_time_is_not_new() -> None:
    first = pod("web-a", {"running": {"startedAt": "10:00"}}, restartCount=1)
    second = pod("web-a", {"running": {"startedAt": "10:05"}}, restartCount=2)
    assert signs([first]) == signs([second])


def test_a_pod_in_place_of_another_is_not_new() -> None:
    assert signs([pod("web-a", {"running": {}})]) == signs([pod("web-b", {"running": {}})])


def test_an_event_is_new_once() -> None:
    def event(name: str, reason: str, count: int) -> dict[str, Any]:
        about = {"kind": "Pod", "name": "linux-1"}
        return {"kind": "Event", "metadata": {"name": name}, "involvedObject": about, "reason": reason, "count": count}

    assert signs([event("e1", "Pulling", 1)]) == signs([event("e2", "Pulling", 9)])
    assert signs([event("e1", "Pulling", 1)]) != signs([event("e1", "Pulled", 1)])


def test_numbers_of_ready_pods_and_images_of_nodes_are_new() -> None:
    def daemonset(ready: int) -> dict[str, Any]:
        return {"kind": "DaemonSet", "metadata": {"name": "d"}, "status": {"numberReady": ready}}

    def node(*images: str) -> dict[str, Any]:
        return {"kind": "Node", "metadata": {"name": "n"}, "status": {"images": [{"names": list(images)}]}}

    assert signs([daemonset(1)]) != signs([daemonset(2)])
    assert signs([node("a")]) < signs([node("a", "b")])
