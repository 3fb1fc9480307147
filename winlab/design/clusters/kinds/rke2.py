"""RKE2: k3s's supervisor with upstream's static pods. Facts: rancher/rke2 6ce1a80, rke2-docs."""

from __future__ import annotations

from winlab.design.clusters.kinds.k3s import K3s
from winlab.design.clusters.model import AdminFile


class Rke2(K3s):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "rke2"
    contexts = ""
    admin_files = (AdminFile("/etc/rancher/rke2/rke2.yaml", "root"),)
    containers = None
    needs = "a cluster made with 'cni: calico' or flannel, and egress-selector-mode disabled on every server"
    flannel_cure = "Give it VNI 4096 and port 4789 with a HelmChartConfig for rke2-flannel."
    suffix = "+rke2"
    arguments = "rke2.io/node-args"
    service = "rke2-server"


KIND = Rke2()
