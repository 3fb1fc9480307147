"""CoreDNS of a cluster that k3s makes: the same objects as in clusters by Kubernetes' own installer. Pure.

k3s would undo changes to its own CoreDNS at each start (k3s-io/k3s pkg/deploy/controller.go), such as the names of
machines beside the cluster.
"""

from __future__ import annotations

from typing import Any

from winlab.design.distribution.model import ClusterSettings

SYSTEM = "kube-system"
LABELS = {"k8s-app": "kube-dns"}
IMAGE = "registry.k8s.io/coredns/coredns"
COREFILE = """\
.:53 {{
    errors
    health {{
       lameduck 5s
    }}
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }}
    prometheus :9153
    forward . /etc/resolv.conf {{
       max_concurrent 1000
    }}
    cache 30
    loop
    reload
    loadbalance
}}
"""


def objects(cluster: ClusterSettings) -> list[dict[str, Any]]:
    """All of them, the Deployment last: once it is there, nothing is missing."""
    role, rbac = "system:coredns", "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named("coredns")},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": SYSTEM}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _named("coredns"),
            "data": {"Corefile": COREFILE.format(domain=cluster.domain)},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _named("kube-dns")
            | {"labels": {**LABELS, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
            "spec": {
                "clusterIP": cluster.dns,
                "selector": LABELS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                    {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _named("coredns") | {"labels": LABELS},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": _pod(cluster)},
            },
        },
    ]


def _pod(cluster: ClusterSettings) -> dict[str, Any]:
    ports = (("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", 9153, "TCP"))
    container = {
        "name": "coredns",
        "image": f"{IMAGE}:{cluster.versions.coredns}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"name": name, "containerPort": port, "protocol": protocol} for name, port, protocol in ports],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
        "volumeMounts": [{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": True}],
        "livenessProbe": {**_probe("/health", 8080), "initialDelaySeconds": 60, "timeoutSeconds": 5},
        "readinessProbe": {**_probe("/ready", 8181), "timeoutSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "containers": [container],
        "dnsPolicy": "Default",
        "volumes": [
            {
                "name": "config-volume",
                "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]},
            }
        ],
    }


def _probe(path: str, port: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port, "scheme": "HTTP"}}


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": SYSTEM}
