"""What winlab's labs share in an external cluster, and its end: RuntimeClasses, and the Windows half of its network."""

from __future__ import annotations

from winlab.adapters.kube import runtime_classes
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.cni.model import HALF
from winlab.design.render.nodes import MACHINE

OURS = f"--selector=kubernetes.io/os=windows,{MACHINE}"
KINDS = "daemonsets,configmaps,clusterrolebindings,clusterroles,serviceaccounts"
HALVES = ("delete", KINDS, "--all-namespaces", f"--selector={HALF}")
REMOVAL = f"with the last of winlab's Windows nodes also kubectl {' '.join(HALVES)}"


def remove_unused(kubectl: Kubectl) -> None:
    """Remove what no Windows node of a lab needs any more, and the RuntimeClasses if the cluster has no other either.

    :raises ClusterError: the API server refuses, or its answer can't be understood.
    """
    if not kubectl.get("nodes", OURS)["items"]:
        kubectl.run(*HALVES)
    runtime_classes.remove_unused(kubectl)
