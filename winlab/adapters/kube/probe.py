"""What an external cluster is: everything that :class:`~winlab.design.clusters.model.Seen` has. Reads only.

It needs nothing that only one distribution publishes. The only requests that are not reads are access reviews, which
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from winlab.adapters.kube import identity, reading
from winlab.adapters.kube.kubectl import Kubectl, understood
from winlab.design import cni
from winlab.design.clusters.model import Seen, SeenNode
from winlab.design.cni.model import ConfigMapEntry
from winlab.errors import ClusterError

MOST = 1 << 12  # characters of a label or annotation that are kept
SYSTEM_LABEL = "kubernetes.io/os"
KUBEADM = ConfigMapEntry("kube-system", "kubeadm-config", "ClusterConfiguration")
CSR, SIGNER = "certificatesigningrequests", "signers"
Right = tuple[str, str, str, str, str, str, str]
# verb, group, resource, subresource, namespace, name; and what that is for
RIGHTS = (
    ("create", "certificates.k8s.io", CSR, "", "", "", "ask for certificates"),
    ("update", "certificates.k8s.io", CSR, "approval", "", "", "approve certificates"),
    ("approve", "certificates.k8s.io", SIGNER, "", "", identity.CLIENT, "approve certificates of nodes"),
    ("approve", "certificates.k8s.io", SIGNER, "", "", identity.SERVING, "approve certificates of kubelets"),
    ("create", "", "serviceaccounts", "", identity.SYSTEM, "", f"create a service account in {identity.SYSTEM}"),
    ("create", "", "serviceaccounts", "token", identity.SYSTEM, "", "create a token for it"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", "", "bind roles"),
    ("delete", "", "nodes", "", "", "", "delete nodes"),
)
RIGHTS_FOR_HALF = (
    ("create", "", "configmaps", "", identity.SYSTEM, "", f"create ConfigMaps in {identity.SYSTEM}"),
    ("create", "apps", "daemonsets", "", identity.SYSTEM, "", f"create DaemonSets in {identity.SYSTEM}"),
    ("create", "rbac.authorization.k8s.io", "clusterroles", "", "", "", "create ClusterRoles"),
)


def look(kubectl: Kubectl) -> Seen:
    """Look at a cluster.

    :raises ClusterError: it does not answer, or its answers can't be understood.
    """
    version = reading.version(kubectl)
    with understood("What the cluster says of itself"):
        rows = kubectl.get("daemonsets", "--all-namespaces")["items"]
        network = reading.network(kubectl, rows)
        return Seen(
            version=version,
            nodes=tuple(node(row) for row in kubectl.get("nodes")["items"]),
            daemon_sets={str(row["metadata"]["name"]): str(row["metadata"]["namespace"]) for row in rows},
            eager=tuple(sorted(str(row["metadata"]["name"]) for row in rows if _is_eager(row))),
            kubeadm=reading.document(kubectl, KUBEADM) is not None,
            rbac=identity.has_rbac(kubectl),
            profile=network.profile,
            network=network.note,
            lacks=network.lacks,
            lacking=_lacking(kubectl, (*RIGHTS, *(RIGHTS_FOR_HALF if _has_half(network.profile) else ()))),
            endpoints=_endpoints(kubectl),
        )


def node(row: dict[str, Any]) -> SeenNode:
    """A Node object, as far as it matters."""
    meta, spec, status = row["metadata"], row.get("spec") or {}, row.get("status") or {}
    addresses = [one["address"] for one in status.get("addresses") or [] if one["type"] == "InternalIP"]
    return SeenNode(
        name=str(meta["name"]),
        labels=_short(meta.get("labels")),
        annotations=_short(meta.get("annotations")),
        provider=str(spec.get("providerID") or "")[:MOST],
        image=str((status.get("nodeInfo") or {}).get("osImage") or "")[:MOST],
        addresses=tuple(map(str, addresses)),
        pod_cidr=str(spec.get("podCIDR") or ""),
    )


def _short(texts: dict[str, str] | None) -> dict[str, str]:
    return {name: text for name, text in (texts or {}).items() if len(text) <= MOST}


def _is_eager(row: dict[str, Any]) -> bool:
    """Whether a DaemonSet's pods also run on Windows nodes, whatever taints these have."""
    spec = row["spec"]["template"]["spec"]
    everything = any(
        one.get("operator") == "Exists" and not one.get("key") and one.get("effect") in (None, "", "NoSchedule")
        for one in spec.get("tolerations") or []
    )
    return everything and SYSTEM_LABEL not in str(spec.get("nodeSelector")) + str(spec.get("affinity"))


def _has_half(profile: str | None) -> bool:
    return profile is not None and cni.get(profile).has_half


def _lacking(kubectl: Kubectl, rights: Sequence[Right]) -> tuple[str, ...]:
    """What these credentials may not do, of what a join needs."""
    reviews = [_review(*right[:-1]) for right in rights]
    answer = kubectl.run(
        "create", "--filename=-", "--output=jsonpath={.status.allowed} ", stdin=yaml.safe_dump_all(reviews)
    )
    allowed = answer.split()
    if len(allowed) != len(rights):
        raise ClusterError("The cluster does not say what these credentials may do.", why=answer[:500])
    return tuple(right[-1] for right, said in zip(rights, allowed, strict=True) if said != "true")


def _review(verb: str, group: str, resource: str, subresource: str, namespace: str, name: str) -> dict[str, Any]:
    about = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**about, "namespace": namespace, "name": name}},
    }


def _endpoints(kubectl: Kubectl) -> tuple[str, ...]:
    """Host and port of each API server, as its own Service has them."""
    words = ("endpointslices", "--namespace=default", "--selector=kubernetes.io/service-name=kubernetes")
    found: Sequence[dict[str, Any]] = kubectl.get(*words)["items"]
    made = {
        f"{address}:{int(port['port'])}"
        for row in found
        if row.get("addressType") == "IPv4"
        for port in row.get("ports") or []
        for endpoint in row.get("endpoints") or []
        for address in endpoint.get("addresses") or []
    }
    return tuple(sorted(made))
