"""kubeadm: the control plane in static pods of the controllers' kubelets. Pure."""

from __future__ import annotations

from typing import Any

from winlab.design.cni.model import ConfigMapEntry
from winlab.design.contract.call import Call
from winlab.design.distribution.kubeadm import calls, files, required
from winlab.design.distribution.model import ClusterSettings, Distribution, Member, Published
from winlab.design.system import System


class Kubeadm(Distribution):
    """See :class:`winlab.design.distribution.model.Distribution`."""

    name = "kubeadm"
    own_programs = ("kubeadm",)
    own_files = (files.DROP_IN,)
    services = ("containerd", "kubelet")
    control_plane = required.CONTROL_PLANE
    one_for_all = required.ONE_FOR_ALL
    bootstraps = True
    admin_file = "/etc/kubernetes/admin.conf"
    # kubeadm's constant NodeBootstrapTokenAuthGroup; it binds to it the right to request a node's certificate
    token_group = "system:bootstrappers:kubeadm:default-node-token"  # noqa: S105 - the name of a group
    published = Published(
        access=ConfigMapEntry("kube-public", "cluster-info", "kubeconfig"),
        cluster=ConfigMapEntry("kube-system", "kubeadm-config", "ClusterConfiguration"),
        kubelet=ConfigMapEntry("kube-system", "kubelet-config", "kubelet"),
    )
    renewal = "kubeadm certs renew all"
    proxies = ("linux",)
    in_pods = True
    copies = True
    restarts = ("kubelet", "containerd")
    # kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm: "Before you begin". Its own check
    # refuses fewer CPUs, and less than 1700 MB
    least = (2, 2048)

    def programs(self, system: System) -> tuple[tuple[str, str], ...]:
        """See the interface."""
        return required.PROGRAMS[system]

    def images(self, system: System) -> tuple[tuple[str, str], ...]:
        """See the interface."""
        return required.IMAGES[system]

    def linux_files(self, cluster: ClusterSettings, node: Member) -> dict[str, str]:
        """See the interface."""
        return files.linux(cluster, node)

    def linux_call(self, cluster: ClusterSettings, node: Member, *, first: bool) -> Call[Any]:
        """``kubeadm init`` or ``kubeadm join``."""
        if first:
            return calls.init(cluster, node, calls.PLACEHOLDERS.token)
        return calls.join(cluster, node, calls.PLACEHOLDERS)

    def windows_call(self, cluster: ClusterSettings, node: Member) -> Call[Any]:
        """``kubeadm.exe join``."""
        return calls.join_windows(cluster, node, calls.PLACEHOLDERS)
