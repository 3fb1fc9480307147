"""What makes a machine a node of any cluster: certificates, accounts and CAs, through the API alone.

An administrator's kubeconfig is enough. No bootstrap token is needed, and nothing that only one distribution leaves in
its clusters. Everything here is named after the node, which is unique in its cluster, so that :func:`remove` needs
nothing else.

Sources: k8s.io/kubernetes pkg/apis/certificates/helpers.go (what the signers accept), pkg/controller/certificates
(what is approved without an administrator), plugin/pkg/auth/authorizer/rbac/bootstrappolicy (the roles).
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from winlab.adapters.kube import authority, signing
from winlab.adapters.kube.kubectl import Kubectl, understood
from winlab.adapters.kube.signing import Requested
from winlab.design.cni.model import SERVER_NAME
from winlab.errors import ClusterError, NotFoundError

NODES = "system:nodes"
CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
CLIENT_USAGES = ("digital signature", "client auth")  # of a key on an elliptic curve; another one is refused
SERVING_USAGES = {"digital signature", "key encipherment", "server auth"}
RENEWER = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
PROXIER = "system:node-proxier"
SYSTEM = "kube-system"
OURS = "winlab.internal/node"  # a label of everything that winlab makes for a node, with the node's name
SERVER_CA = ("kube-root-ca.crt", "ca.crt")
CLIENT_CA = ("extension-apiserver-authentication", "client-ca-file")


@dataclass(frozen=True)
class Authorities:
    """A cluster's CAs, as PEM.

    ``server`` signs the API server's certificate. ``clients`` signs those that the API server logs in with to kubelets
    (``authentication.x509.clientCAFile``). In clusters of some distributions they differ.
    """

    server: str
    clients: str


def authorities(kubectl: Kubectl) -> Authorities:
    """The cluster's CAs, from two ConfigMaps that every control plane publishes.

    :raises ClusterError: they are missing, or are not certificates.
    """
    return Authorities(_bundle(kubectl, *SERVER_CA), _bundle(kubectl, *CLIENT_CA))


def request(kubectl: Kubectl, node: str) -> Requested:
    """Ask for a node's client certificate, and approve that. :func:`winlab.adapters.kube.signing.issued` has it later.

    :raises ClusterError: these credentials may not do that.
    """
    asked = signing.request(kubectl, f"winlab-{node}", user(node), NODES, CLIENT, CLIENT_USAGES, _labels(node))
    signing.approve(kubectl, asked.name)
    return asked


def allow_renewal(kubectl: Kubectl, node: str) -> None:
    """Let a node renew its own client certificate. It gives nothing to other nodes.

    Some distributions have no such binding: their nodes get certificates in another way.

    :raises ClusterError: the API server refuses.
    """
    if has_rbac(kubectl):
        kubectl.apply([_binding(node, "renewal", RENEWER, {"kind": "User", "name": user(node)})])


def proxy_token(kubectl: Kubectl, node: str, lifetime: str) -> str:
    """A token for the node's kube-proxy, which may read services and nodes, but no secrets.

    :param lifetime: as ``8760h``.
    :raises ClusterError: the API server refuses.
    """
    account = _account(node)
    subject = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": SYSTEM}
    bindings = [_binding(node, "proxy", PROXIER, subject)] if has_rbac(kubectl) else []
    kubectl.apply([account, *bindings])
    return kubectl.run("create", "token", subject["name"], f"--namespace={SYSTEM}", f"--duration={lifetime}").strip()


def has_asked_to_serve(kubectl: Kubectl, node: str) -> bool:
    """Whether the node's kubelet asked for a certificate to serve logs and exec, however that was decided.

    The cluster keeps decided requests for an hour.

    :raises ClusterError: the API server does not answer.
    """
    return any((row.get("spec") or {}).get("username") == user(node) for row in _serving(kubectl))


def serving_requests(kubectl: Kubectl, node: str, addresses: Collection[str]) -> tuple[list[str], list[str]]:
    """What the node's kubelet asked for to serve logs and exec, and no one has decided yet.

    No controller of Kubernetes itself approves such requests.

    :param addresses: all that the node has by its plan.
    :returns: the names of those that are as planned, and why others are not.
    :raises ClusterError: the API server does not answer.
    """
    fit, reasons = [], []
    for row in _serving(kubectl):
        name, spec, status = str(row["metadata"]["name"]), row.get("spec") or {}, row.get("status") or {}
        if spec.get("username") != user(node) or status.get("conditions"):
            continue
        if reason := _objection(spec, node, addresses):
            reasons.append(f"'{name}': {reason}")
        else:
            fit.append(name)
    return fit, reasons


def approve_serving(kubectl: Kubectl, node: str, addresses: Collection[str]) -> tuple[int, list[str]]:
    """Approve those of :func:`serving_requests` that are as planned.

    :returns: how many, and why others are not.
    :raises ClusterError: the API server does not answer.
    """
    fit, reasons = serving_requests(kubectl, node, addresses)
    for name in fit:
        signing.approve(kubectl, name)
    return len(fit), reasons


def missing(kubectl: Kubectl, node: str, *, proxy: bool) -> list[str]:
    """What a node of the cluster needs to keep its identity, and what is gone; each as ``kind/name``.

    :param proxy: its kube-proxy has an account of winlab's.
    :raises ClusterError: the API server does not answer.
    """
    wanted = [("clusterrolebinding", _binding_name(node, "renewal"))] if has_rbac(kubectl) else []
    if proxy:
        wanted += [("clusterrolebinding", _binding_name(node, "proxy"))] * bool(wanted)
        wanted.append(("serviceaccount", _account(node)["metadata"]["name"]))
    return [
        f"{kind}/{name}"
        for kind, name in wanted
        if kubectl.find(kind, name, *([f"--namespace={SYSTEM}"] * (kind == "serviceaccount"))) is None
    ]


def is_left(kubectl: Kubectl, node: str) -> bool:
    """Whether the cluster has anything that :func:`remove` removes.

    :raises ClusterError: the API server does not answer.
    """
    kinds = "clusterrolebindings,serviceaccounts,certificatesigningrequests"
    return bool(kubectl.run("get", kinds, "--all-namespaces", f"--selector={OURS}={node}", "--output=name").strip())


def remove(kubectl: Kubectl, node: str) -> None:
    """Remove everything that winlab made for a node, except the Node itself. Safe to repeat.

    :raises ClusterError: the API server refuses.
    """
    mine = f"--selector={OURS}={node}"
    words = ("--ignore-not-found", "--wait=false")
    kubectl.run("delete", "clusterrolebindings", mine, *words)
    kubectl.run("delete", "serviceaccounts", f"--namespace={SYSTEM}", mine, *words)
    kubectl.run("delete", "certificatesigningrequests", mine, *words)


def removal(nodes: Iterable[str]) -> str:
    """The command that removes the same for several nodes."""
    kinds = "clusterrolebindings,serviceaccounts,certificatesigningrequests"
    return f"kubectl delete {kinds} --all-namespaces --selector='{OURS} in ({', '.join(nodes)})'"


def kubelet_kubeconfig(server_ca: str, endpoint: str, node: str, certificate: str, key: str) -> str:
    """The kubeconfig with which a node's kubelet starts; it replaces the certificate by its own at once.

    The name of the API server's certificate is one that all have. So any address that leads there will do.

    :param endpoint: host:port.
    """
    encoded = {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(key.encode()).decode(),
    }
    return authority.kubeconfig(server_ca, endpoint, user(node), encoded, SERVER_NAME)


def has_rbac(kubectl: Kubectl) -> bool:
    """Whether the cluster knows roles. Without them everyone who has a certificate of it may do everything.

    :raises ClusterError: the API server does not answer.
    """
    return kubectl.find("clusterrole", PROXIER) is not None


def user(node: str) -> str:
    """A node as a user of the API."""
    return f"system:node:{node}"


def _serving(kubectl: Kubectl) -> list[dict[str, Any]]:
    """All requests for serving certificates of kubelets."""
    rows: list[dict[str, Any]] = kubectl.get(
        "certificatesigningrequests", f"--field-selector=spec.signerName={SERVING}"
    )["items"]
    return rows


def _bundle(kubectl: Kubectl, name: str, key: str) -> str:
    found = kubectl.find("configmap", name, f"--namespace={SYSTEM}")
    if found is None:
        raise NotFoundError(
            f"The cluster does not publish its CA: there is no ConfigMap '{name}' in {SYSTEM}.",
            why="Its controller manager or API server makes it.",
            cure="See whether the controller manager runs, with --root-ca-file; and the API server with "
            "--client-ca-file.",
        )
    with understood(f"The ConfigMap '{name}' in {SYSTEM}"):
        text = str(found["data"][key])
        if len(text) > signing.LARGEST:
            raise ValueError(f"it has more than {signing.LARGEST >> 10} KiB")
        authority.key_hashes(text.encode())
    return text


def _objection(spec: dict[str, Any], node: str, addresses: Collection[str]) -> str:
    """Why a request for a serving certificate is not what the plan says; empty if it is."""
    try:
        encoded = spec["request"]
        if len(encoded) > signing.LARGEST:
            return f"it has more than {signing.LARGEST >> 10} KiB"
        csr = x509.load_pem_x509_csr(base64.b64decode(encoded, validate=True))
        key = csr.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) and not (
            isinstance(key, rsa.RSAPublicKey) and key.key_size <= 1 << 13
        ):
            return "its key is of another kind than kubelets make"
        if not csr.is_signature_valid:
            return "its signature is not that of its key"
        names = [(one.oid, one.value) for one in csr.subject]
        if sorted(names, key=str) != sorted(
            [(NameOID.ORGANIZATION_NAME, NODES), (NameOID.COMMON_NAME, user(node))], key=str
        ):
            return "it names another subject"
        others = [
            one.oid.dotted_string for one in csr.extensions if not isinstance(one.value, x509.SubjectAlternativeName)
        ]
        alternatives = list(csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ClusterError, KeyError, TypeError, ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        return f"it can't be understood ({type(error).__name__})"
    allowed = {x509.DNSName(node), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)}
    if not alternatives or not allowed.issuperset(alternatives):
        return "it is for other names or addresses than the node's"
    if others or not SERVING_USAGES.issuperset(map(str, spec.get("usages") or [""])):
        return "it asks for other usages"
    return ""


def _binding(node: str, purpose: str, role: str, subject: dict[str, str]) -> dict[str, Any]:
    group = {} if subject["kind"] == "ServiceAccount" else {"apiGroup": "rbac.authorization.k8s.io"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _binding_name(node, purpose), "labels": _labels(node)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{**subject, **group}],
    }


def _binding_name(node: str, purpose: str) -> str:
    return f"winlab:{purpose}:{node}"


def _account(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": f"winlab-kube-proxy-{node}", "namespace": SYSTEM, "labels": _labels(node)},
        "automountServiceAccountToken": False,
    }


def _labels(node: str) -> dict[str, str]:
    return {OURS: node}
