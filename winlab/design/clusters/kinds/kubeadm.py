"""kubeadm. Facts: k8s.io/kubernetes cmd/kubeadm at v1.37.2."""

from __future__ import annotations

from collections.abc import Sequence

from winlab.design.clusters.model import AdminFile, Facts, Kind, Seen


class Kubeadm(Kind):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "kubeadm"
    contexts = "kubernetes-admin@.+"
    admin_files: Sequence[AdminFile] = (AdminFile("/etc/kubernetes/admin.conf", "root"),)
    facts = Facts(
        authorization="Node,RBAC",
        restricts=True,
        two_cas=False,
        verifies=False,
        kubelets="direct",
        tokens=True,
        allocates=True,
        pods="10.244.0.0/16",
        services="10.96.0.0/12",
        port=6443,
    )
    needs = "Calico with VXLAN or flannel with VNI 4096 and port 4789; any other network with --set network.cni=l3"

    def recognizes(self, seen: Seen) -> bool:
        """By the ConfigMap that it leaves."""
        return seen.kubeadm


KIND = Kubeadm()
