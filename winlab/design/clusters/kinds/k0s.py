"""k0s. Facts: k0sproject/k0s dff90ce, pkg/component/controller (csrapprover.go, konnectivity);
a37629a static/manifests/calico/DaemonSet/calico-node-windows.yaml."""

from __future__ import annotations

from winlab.design.clusters.model import AdminFile, Facts, Finding, Kind, Seen
from winlab.design.cni.model import Lack


class K0s(Kind):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "k0s"
    admin_files = (AdminFile("/var/lib/k0s/pki/admin.conf", "root"),)
    facts = Facts(
        authorization="Node,RBAC",
        restricts=True,
        two_cas=False,
        verifies=True,
        kubelets="agents",
        tokens=True,
        allocates=True,
        pods="10.244.0.0/16",
        services="10.96.0.0/12",
        port=6443,
        proxies=("linux", "windows"),
    )
    needs = "a cluster made with 'spec.network.provider: calico', its mode vxlan, and at least one Linux worker"

    def recognizes(self, seen: Seen) -> bool:
        """By its version."""
        return "+k0s" in seen.version

    def lacks(self, seen: Seen) -> tuple[Lack, ...]:
        """Its controller adds both the DaemonSet and strictAffinity, but with VXLAN alone."""
        if seen.profile is None or seen.profile == "calico-vxlan":
            return ()
        return (
            Lack(
                "k0s adds Calico for Windows only if its Calico has the mode vxlan.",
                "Make the cluster again with 'spec.network.calico.mode: vxlan' in k0s.yaml.",
            ),
        )

    def findings(self, seen: Seen) -> list[Finding]:
        """Who reaches the kubelets, and what the controller adds by itself."""
        found = [
            Finding(
                "DaemonSets for Windows",
                "warning",
                "As soon as a Windows node exists, its controller adds calico-node-windows and kube-proxy-windows.",
                "Leave them to it: the nodes need their files, not a second kube-proxy.",
            )
        ]
        if "konnectivity-agent" not in seen.daemon_sets:
            found.append(
                Finding(
                    "logs and exec",
                    "change",
                    "The API server reaches kubelets through konnectivity-agent on Linux workers, and there is none.",
                    "Add a Linux worker, or start a controller with --enable-worker.",
                )
            )
        return found


KIND = K0s()
