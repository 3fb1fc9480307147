"""The RuntimeClasses that winlab makes in external clusters, and their end."""

from __future__ import annotations

import re
from typing import Any

from winlab.adapters.kube.kubectl import Kubectl, understood

NAME = re.compile(r"windows-[0-9]{4}")
WINDOWS = "--selector=kubernetes.io/os=windows"


def remove_unused(kubectl: Kubectl) -> None:
    """Remove winlab's RuntimeClasses if the cluster has no Windows nodes any more, and no one else changed them.

    :raises ClusterError: the API server refuses, or its answer can't be understood.
    """
    if kubectl.get("nodes", WINDOWS)["items"]:
        return
    with understood("The cluster's RuntimeClasses"):
        rows = kubectl.get("runtimeclasses", "--show-managed-fields")["items"]
        names = [name for row in rows if NAME.fullmatch(name := row["metadata"]["name"]) and _is_ours(row)]
    for name in names:
        kubectl.run("delete", "runtimeclass", name, "--ignore-not-found")


def _is_ours(row: dict[str, Any]) -> bool:
    """Whether winlab made it, and no one changed it: server-side apply records who did."""
    return {field["manager"] for field in row["metadata"].get("managedFields") or [{"manager": ""}]} == {"winlab"}
