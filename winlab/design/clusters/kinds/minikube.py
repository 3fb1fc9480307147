"""minikube: kubeadm in a container or machine.

Facts: kubernetes/minikube eb25dbc, pkg/minikube/constants, pkg/drivers/kic/oci.
"""

from __future__ import annotations

from dataclasses import replace

from winlab.design.clusters.kinds.kubeadm import Kubeadm
from winlab.design.clusters.model import Containers, Seen


class Minikube(Kubeadm):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "minikube"
    contexts = "minikube"
    profile_file = "~/.minikube/profiles/{}/config.json"
    admin_files = ()
    containers = Containers(
        "name.minikube.sigs.k8s.io",
        "role.minikube.sigs.k8s.io",
        "",
        "kubectl config view --minify --flatten --context {}",
    )
    facts = replace(Kubeadm.facts, port=8443)
    needs = "'minikube start --cni=calico': kindnet crashes when a worker joins, and bridge has no routes"

    def recognizes(self, seen: Seen) -> bool:
        """By the label that it gives its nodes."""
        return any("minikube.k8s.io/version" in node.labels for node in seen.nodes)


KIND = Minikube()
