"""The files of a node of an external cluster: its kubelet's configuration, and its kube-proxy where it needs one. Pure.

Field names: k8s.io/kubelet config/v1beta1 and k8s.io/kube-proxy config/v1alpha1; tests compare every written field with
the lists in tests/data/config-fields.json.
"""

from __future__ import annotations

from typing import Any

import yaml

from winlab.design.distribution import containerd, kubelet
from winlab.design.distribution.model import ClusterSettings, Member

CONFIG = "/var/lib/kubelet/config.yaml"
MANIFESTS = "/etc/kubernetes/manifests"
PROXY_FOLDER = "/var/lib/kube-proxy"
PROXY_CONFIG = f"{PROXY_FOLDER}/config.yaml"
IMAGE = "registry.k8s.io/kube-proxy"


def linux(cluster: ClusterSettings, node: Member) -> dict[str, str]:
    """The files of a Linux node, by path; none is secret."""
    texts = {
        "/etc/systemd/system/containerd.service": containerd.unit(),
        "/etc/systemd/system/kubelet.service": kubelet.unit(kubelet.linux_arguments(node)),
        "/etc/containerd/config.toml": containerd.config(cluster.versions, node.system),
        "/etc/crictl.yaml": containerd.crictl(node.system),
        CONFIG: kubelet_configuration(cluster, node),
    }
    if runs_proxy(cluster, node):
        texts |= {PROXY_CONFIG: _proxy(cluster), f"{MANIFESTS}/kube-proxy.yaml": _proxy_pod(cluster, node)}
    return texts


def runs_proxy(cluster: ClusterSettings, node: Member) -> bool:
    """Whether a Linux node needs a kube-proxy: the agents of some distributions contain it, and there is no DaemonSet.

    On Windows it is a service, which another script makes.
    """
    return not node.system.hns and node.system.name not in cluster.proxies


def kubelet_configuration(cluster: ClusterSettings, node: Member) -> str:
    """The KubeletConfiguration. On Windows, flags undo what it does not have.

    Its certificates renew themselves: ``rotateCertificates`` for the one that it logs in with, ``serverTLSBootstrap``
    for the one that it serves logs and exec with.
    """
    drive = "" if node.system.flags_file else "C:"
    row: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{drive}/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [cluster.dns],
        "clusterDomain": cluster.domain,
        "failSwapOn": False,
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
    }
    if node.system.systemd_cgroups:
        row |= {"cgroupDriver": "systemd", "resolvConf": kubelet.RESOLV_CONF, "staticPodPath": MANIFESTS}
    return yaml.safe_dump(row, sort_keys=False)


def _proxy(cluster: ClusterSettings) -> str:
    row = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.proxy_mode,
        "clusterCIDR": cluster.pod_cidr,
        "clientConnection": {"kubeconfig": f"{PROXY_FOLDER}/kubeconfig"},
    }
    return yaml.safe_dump(row, sort_keys=False)


def _proxy_pod(cluster: ClusterSettings, node: Member) -> str:
    """A static pod: its image is in the node already."""
    mounts = {"config": PROXY_FOLDER, "lock": "/run/xtables.lock", "modules": "/lib/modules"}
    container = {
        "name": "kube-proxy",
        "image": f"{IMAGE}:{cluster.versions.kubernetes}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/kube-proxy", f"--config={PROXY_CONFIG}", f"--hostname-override={node.name}"],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": name != "lock"} for name, path in mounts.items()
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-proxy", "namespace": "kube-system", "labels": {"k8s-app": "kube-proxy"}},
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [
                {"name": name, "hostPath": {"path": path, **({"type": "FileOrCreate"} if name == "lock" else {})}}
                for name, path in mounts.items()
            ],
        },
    }
    return yaml.safe_dump(pod, sort_keys=False)
