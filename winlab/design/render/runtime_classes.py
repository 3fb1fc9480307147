"""RuntimeClasses for Windows: a pod that names one runs on nodes of that build, despite the taint. Pure.

Source: Kubernetes' guide for Windows containers (taints, tolerations, RuntimeClass). Its label is the build that the
kubelet reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}
HANDLER = "runhcs-wcow-process"  # containerd's own name for process isolation


def objects(releases: Sequence[str]) -> list[dict[str, Any]]:
    """One RuntimeClass for each release of Windows Server, such as ``windows-2022``."""
    return [
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": f"windows-{release}"},
            "handler": HANDLER,
            "scheduling": {
                "nodeSelector": {
                    "kubernetes.io/os": "windows",
                    "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/windows-build": BUILDS[release],
                },
                "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
            },
        }
        for release in releases
    ]
