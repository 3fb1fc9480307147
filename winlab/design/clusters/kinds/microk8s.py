"""MicroK8s. Facts: canonical/microk8s d099c90, microk8s-resources/default-args and default-cni."""

from __future__ import annotations

from winlab.design.clusters.model import AdminFile, Facts, Finding, Kind, Seen


class Microk8s(Kind):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "microk8s"
    contexts = "microk8s"
    admin_files = (AdminFile("/var/snap/microk8s/current/credentials/client.config", "the group microk8s"),)
    facts = Facts(
        authorization="AlwaysAllow",
        restricts=False,
        two_cas=False,
        verifies=True,
        kubelets="direct",
        tokens=False,
        allocates=False,
        pods="10.1.0.0/16",
        services="10.152.183.0/24",
        port=16443,
        proxies=(),
    )
    rbac_cure = "microk8s enable rbac"
    needs = "'microk8s enable rbac'; strict affinity and the Windows DaemonSet of its Calico, which is fit otherwise"

    def recognizes(self, seen: Seen) -> bool:
        """By the label that it gives its nodes."""
        return any("microk8s.io/cluster" in node.labels for node in seen.nodes)

    def findings(self, seen: Seen) -> list[Finding]:
        """What its roles lack."""
        found = []
        if seen.rbac:
            found.append(
                Finding(
                    "a node's rights",
                    "warning",
                    "Its API server has no NodeRestriction: a worker's certificate can change other nodes, too.",
                    "Add NodeRestriction to --enable-admission-plugins in "
                    "/var/snap/microk8s/current/args/kube-apiserver, then 'snap restart microk8s'.",
                )
            )
        return found


KIND = Microk8s()
