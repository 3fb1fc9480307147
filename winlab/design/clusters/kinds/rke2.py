"""RKE2: k3s's supervisor with upstream's static pods. Facts: rancher/rke2 6ce1a80 (pkg/windows/calico.go),
rke2-docs, rancher/rke2-charts (packages/rke2-calico, rke2-flannel: VNI 4096 and port 4789 by default)."""

from __future__ import annotations

from dataclasses import replace

from winlab.design.clusters.kinds.k3s import K3s
from winlab.design.clusters.model import AdminFile, Seen
from winlab.design.cni.calico.existing import DAEMON_SET
from winlab.design.cni.model import Lack

CALICO = (
    "Make the cluster with 'cni: flannel', whose Windows half winlab adds. Or add a HelmChartConfig rke2-calico in "
    "kube-system with 'installation: {calicoNetwork: {windowsDataplane: HNS}, serviceCIDRs: [SERVICES]}', and a "
    f"registry of images that has node-windows and cni-windows: Calico's operator then makes {DAEMON_SET}."
)


class Rke2(K3s):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "rke2"
    contexts = ""
    admin_files = (AdminFile("/etc/rancher/rke2/rke2.yaml", "root"),)
    containers = None
    needs = "a cluster made with 'cni: flannel', and egress-selector-mode disabled on every server"
    flannel_cure = "Give it VNI 4096 and port 4789 with a HelmChartConfig for rke2-flannel."
    suffix = "+rke2"
    arguments = "rke2.io/node-args"
    service = "rke2-server"

    def lacks(self, seen: Seen) -> tuple[Lack, ...]:
        """Its own Calico for Windows runs in its agent, rke2.exe, which winlab's workers don't have."""
        return tuple(replace(one, cure=CALICO) if DAEMON_SET in one.says else one for one in seen.lacks)


KIND = Rke2()
