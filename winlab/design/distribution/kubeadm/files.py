"""The files of a Linux node of a kubeadm cluster before it joins. Pure."""

from __future__ import annotations

from winlab.design.distribution import containerd, kubelet
from winlab.design.distribution.kubeadm import config
from winlab.design.distribution.model import ClusterSettings, Member

DROP_IN = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
# As kubeadm's own packages have it: kubernetes/release, cmd/krel/templates/latest
DROP_IN_TEXT = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# "kubeadm init" and "kubeadm join" write this file
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def linux(cluster: ClusterSettings, node: Member) -> dict[str, str]:
    """The files by path."""
    texts = {
        "/etc/systemd/system/containerd.service": containerd.unit(),
        "/etc/systemd/system/kubelet.service": kubelet.unit(),
        DROP_IN: drop_in(),
        "/etc/containerd/config.toml": containerd.config(cluster.versions, node.system),
        "/etc/crictl.yaml": containerd.crictl(node.system),
    }
    return texts | config.patches(cluster) if node.controller else texts


def drop_in() -> str:
    """The kubelet's drop-in: where kubeadm's results are."""
    return DROP_IN_TEXT
