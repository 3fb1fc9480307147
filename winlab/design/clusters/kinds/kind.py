"""kind: kubeadm in containers. Facts: kubernetes-sigs/kind fed2688, pkg/cluster/constants, images/kindnetd."""

from __future__ import annotations

from dataclasses import replace

from winlab.design.clusters.kinds.kubeadm import Kubeadm
from winlab.design.clusters.model import Containers, Seen


class InDocker(Kubeadm):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "kind"
    contexts = "kind-.+"
    admin_files = ()
    containers = Containers(
        "io.x-k8s.kind.cluster", "io.x-k8s.kind.role", "control-plane", "kind get kubeconfig --internal --name {}"
    )
    facts = replace(Kubeadm.facts, services="10.96.0.0/16")
    needs = "a cluster made with disableDefaultCNI, and Calico with VXLAN in it: kindnet crashes when a worker joins"

    def recognizes(self, seen: Seen) -> bool:
        """By the ids that it gives its nodes."""
        return any(node.provider.startswith("kind://") for node in seen.nodes)


KIND = InDocker()
