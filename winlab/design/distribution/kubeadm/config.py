"""kubeadm's configuration files, kubeadm.k8s.io/v1beta4, for the first controller, further ones, and workers. Pure.

Field names: k8s.io/kubernetes cmd/kubeadm/app/apis/kubeadm/v1beta4, k8s.io/kubelet config/v1beta1 and k8s.io/kube-proxy
config/v1alpha1; tests compare every written field with the lists in tests/data/config-fields.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from winlab.design.distribution import leases
from winlab.design.distribution.kubelet import RESOLV_CONF
from winlab.design.distribution.model import ClusterSettings, Member

API = "kubeadm.k8s.io/v1beta4"
TOKEN_LIFE = "2h0m0s"  # noqa: S105 - as long as kubeadm keeps the certificates for further controllers
# Measured times on one emulated CPU, with a margin for a busy host
SLOW_TIMEOUTS = {
    "controlPlaneComponentHealthCheck": "15m0s",
    "kubeletHealthCheck": "10m0s",
    "kubernetesAPICall": "5m0s",
    "etcdAPICall": "5m0s",
    "tlsBootstrap": "10m0s",
    "discovery": "10m0s",
}
# etcd flushes its writes here, too: after a power cut one with unsafe-no-fsync can't open its database any more
SLOW_ETCD = {"heartbeat-interval": "500", "election-timeout": "5000"}
SLOW_IGNORED = ["NumCPU", "Mem"]
PATCHES = "/etc/kubernetes/patches"
# By kubeadm's settings the kubelet probes etcd, API server and scheduler every second, and kills them after 80 s
# without an answer. In an emulator the probes alone take a quarter of a CPU, and answers can be late
SLOW_PROBES = {
    "livenessProbe": {"periodSeconds": 30, "timeoutSeconds": 60},
    "readinessProbe": {"periodSeconds": 20, "timeoutSeconds": 60},
}
# The API server makes much garbage while it starts. Less frequent collection cuts its CPU time until it is ready by a
# fifth (1.36.3, outside an emulator: 2.4 s to 2.0 s), for 120 MB more memory (go.dev/doc/gc-guide)
SLOW_GARBAGE = {"name": "GOGC", "value": "400"}
READY_PROBED = ("etcd", "kube-apiserver", "kube-scheduler")


@dataclass(frozen=True)
class JoinCredentials:
    """What lets a node join: short-lived secrets."""

    token: str = field(repr=False)
    ca_hashes: tuple[str, ...]  # "sha256:..." of the cluster CA's public key
    certificate_key: str | None = field(default=None, repr=False)  # for further controllers


def init(cluster: ClusterSettings, node: Member, token: str, certificate_key: str | None = None) -> str:
    """The file for ``kubeadm init --config`` on the first controller.

    :param certificate_key: for ``--upload-certs``, which lets further controllers fetch the certificates.
    """
    first: dict[str, Any] = {
        "apiVersion": API,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": token, "ttl": TOKEN_LIFE}],
        "nodeRegistration": _registration(cluster, node),
        "localAPIEndpoint": _local(cluster, node),
    }
    if certificate_key is not None:
        first["certificateKey"] = certificate_key
    return _file(_patched(cluster, _timed(cluster, first)), _cluster(cluster), _kubelet(cluster), _proxy(cluster))


def join_controller(cluster: ClusterSettings, node: Member, credentials: JoinCredentials) -> str:
    """The file for ``kubeadm join --config`` on a further controller; it holds secrets."""
    assert credentials.certificate_key is not None
    joining = _join(cluster, node, credentials)
    joining["controlPlane"] = {
        "localAPIEndpoint": _local(cluster, node),
        "certificateKey": credentials.certificate_key,
    }
    return _file(_patched(cluster, _timed(cluster, joining)))


def join_worker(cluster: ClusterSettings, node: Member, credentials: JoinCredentials) -> str:
    """The file for ``kubeadm join --config`` on a Linux or Windows worker; it holds a secret."""
    return _file(_timed(cluster, _join(cluster, node, credentials)))


def patches(cluster: ClusterSettings) -> dict[str, str]:
    """kubeadm's patches for its own static pods and its CoreDNS: files by their paths on a controller.

    (kubernetes.io/docs/setup/production-environment/tools/kubeadm/control-plane-flags, "Customizing with patches";
    ``corednsdeployment`` since 1.32)
    """
    if not cluster.emulated:
        return {}
    files = {}
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        probes = {key: value for key, value in SLOW_PROBES.items() if key == "livenessProbe" or name in READY_PROBED}
        spec = {"containers": [{"name": name, "env": [SLOW_GARBAGE], **probes}]}
        files[f"{PATCHES}/{name}+strategic.yaml"] = yaml.safe_dump({"spec": spec})
    files[f"{PATCHES}/corednsdeployment+strategic.yaml"] = yaml.safe_dump({"spec": {"replicas": 1}})
    return files


def _join(cluster: ClusterSettings, node: Member, credentials: JoinCredentials) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "nodeRegistration": _registration(cluster, node),
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": cluster.endpoint,
                "token": credentials.token,
                "caCertHashes": list(credentials.ca_hashes),
            }
        },
    }


def _registration(cluster: ClusterSettings, node: Member) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": node.name,
        "criSocket": node.system.cri_socket,
        "imagePullPolicy": "Never" if cluster.preloaded else "IfNotPresent",
    }
    if node.system.flags_file:
        extra = {"node-ip": node.address}
        if node.labels:
            extra["node-labels"] = ",".join(f"{key}={value}" for key, value in node.labels.items())
        row["kubeletExtraArgs"] = _arguments(extra)
    if node.taints is not None:
        row["taints"] = [
            {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
            for taint in node.taints
        ]
    if cluster.emulated:
        row["ignorePreflightErrors"] = SLOW_IGNORED
    return row


def _local(cluster: ClusterSettings, node: Member) -> dict[str, Any]:
    return {"advertiseAddress": node.address, "bindPort": int(cluster.endpoint.rpartition(":")[2])}


def _cluster(cluster: ClusterSettings) -> dict[str, Any]:
    versions = cluster.versions
    etcd: dict[str, Any] = {"dataDir": "/var/lib/etcd", "imageTag": versions.etcd}
    if cluster.emulated:
        etcd["extraArgs"] = _arguments(SLOW_ETCD)
    row: dict[str, Any] = {
        "apiVersion": API,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": versions.kubernetes,
        "controlPlaneEndpoint": cluster.endpoint,
        "apiServer": {"certSANs": list(cluster.names)},
        "etcd": {"local": etcd},
        "dns": {"imageTag": versions.coredns},
        "networking": {
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
            "dnsDomain": cluster.domain,
        },
    }
    if cluster.emulated:
        row["encryptionAlgorithm"] = "ECDSA-P256"  # RSA keys take an emulated CPU a minute
        slow = leases.slow(versions)
        row |= {
            "controllerManager": {"extraArgs": _arguments(slow["kube-controller-manager"])},
            "scheduler": {"extraArgs": _arguments(slow["kube-scheduler"])},
        }
    return row


def _kubelet(cluster: ClusterSettings) -> dict[str, Any]:
    """The configuration that kubeadm gives to all kubelets; on Windows kubeadm empties resolvConf itself."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "clusterDomain": cluster.domain,
        "failSwapOn": False,  # it need not care about Windows' pagefile, and a lab's guests are small
        "resolvConf": RESOLV_CONF,
    }


def _proxy(cluster: ClusterSettings) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.proxy_mode,
        "clusterCIDR": cluster.pod_cidr,
    }


def _timed(cluster: ClusterSettings, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "timeouts": dict(SLOW_TIMEOUTS)} if cluster.emulated else row


def _patched(cluster: ClusterSettings, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "patches": {"directory": PATCHES}} if cluster.emulated else row


def _arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    """v1beta4 takes arguments as a list."""
    return [{"name": name, "value": value} for name, value in values.items()]


def _file(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)
