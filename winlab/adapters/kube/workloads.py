"""Whether a workload runs, by its object's status. Pure."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def condition(item: Object, kind: str) -> Object:
    """A condition of an object; if it has none of this type, one with the status Unknown."""
    for row in item.get("status", {}).get("conditions", []):
        if row.get("type") == kind:
            return dict(row)
    return {"type": kind, "status": "Unknown", "reason": "", "message": "nothing has been reported"}


def reason(row: Object) -> str:
    """What a condition or a container's state says, in one line."""
    parts = [str(row.get(key)) for key in ("reason", "message") if row.get(key)]
    return ": ".join(parts) or str(row.get("status", "Unknown"))


def workload_problem(item: Object) -> str:
    """Why a Deployment, DaemonSet, StatefulSet or APIService is not ready; empty if it is."""
    status, newest = item.get("status", {}), item["metadata"].get("generation")
    # until its controller has seen the object, numbers and conditions are outdated
    if newest is not None and status.get("observedGeneration", newest) < newest:
        return "its controller has not seen it yet"
    if item.get("kind") == "DaemonSet":
        if status.get("observedGeneration") is None:
            return "its controller has not seen it yet"
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        return "" if ready >= wanted else f"{ready} of {wanted} pods are ready"
    if item.get("kind") == "StatefulSet":
        wanted, ready = item["spec"].get("replicas", 1), status.get("readyReplicas", 0)
        return "" if ready >= wanted else f"{ready} of {wanted} pods are ready"
    available = condition(item, "Available")
    return "" if available["status"] == "True" else reason(available)
