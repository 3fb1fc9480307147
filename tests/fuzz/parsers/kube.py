"""Kubeconfigs of a controller, a lab, the user and an external cluster; and answers of kubectl."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import certificates
import mutation
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from fuzzing import parser

from winlab import documents
from winlab.adapters.kube import authority, diagnose, discovery, identity, kubeconfig, probe, reading, reduced
from winlab.adapters.kube.kubectl import Kubectl, understood
from winlab.addons import record
from winlab.checks import objects
from winlab.design.clusters import verdict
from winlab.design.clusters.model import Ends, Seen
from winlab.design.distribution import known
from winlab.design.plan import tags
from winlab.errors import WinlabError
from winlab.lab_folder import LabFolder
from winlab.operations import join, logs
from winlab.steps import pod_network

from .archives import write

ADMIN = certificates.admin().encode()
OWN = kubeconfig.for_lab(
    reduced.identity(certificates.admin(), "controller-1"), "lab", "192.0.2.1:6443", "192.0.2.0/24"
)
USERS = b"""# mine
apiVersion: v1
kind: Config
clusters:
- name: a  # old
  cluster: {server: https://a}
contexts:
- context:
    cluster: a
    user: a
  name: a
current-context: a
users:
- name: a
  user:
    token: x
preferences: {}
"""


def text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


@parser("admin-conf", lambda: [ADMIN], mutation.YAML)
def admin_conf(content: bytes, folder: Path) -> None:
    reduced.identity(text(content), "controller-1")


@parser("lab-kubeconfig", lambda: [OWN.encode()], mutation.YAML)
def lab_kubeconfig(content: bytes, folder: Path) -> None:
    lab = LabFolder("lab")
    lab.make()
    lab.kubeconfig.write_bytes(content)
    kubeconfig.direct(lab.kubeconfig)
    reduced.harmless(kubeconfig.read(lab), "lab")
    authority.key_hashes(authority.authority(lab.kubeconfig).encode())


@parser("user-kubeconfig", lambda: [USERS, kubeconfig.named("lab", {"server": "x"}, {}).encode()], mutation.YAML)
def user_kubeconfig(content: bytes, folder: Path) -> None:
    path = write(folder, "config", content)
    try:
        kubeconfig.merge(path, OWN, "lab", use=True)
    except kubeconfig.WinlabError:
        assert path.read_bytes() == content, "refused, and changed all the same"
        raise
    assert documents.from_yaml(path.read_text(encoding="utf-8"))["current-context"] == "winlab-lab"
    kubeconfig.unmerge(path, "lab")
    assert _others(path.read_bytes()) == _others(content)


def _others(content: bytes) -> str:
    """What is not the lab's in a kubeconfig; without the current context, and what winlab writes if it is missing."""
    config = documents.from_yaml(text(content)) or {}
    for key in kubeconfig.LISTS:
        config[key] = [row for row in config.get(key) or [] if row.get("name") != "winlab-lab"]
    return repr(sorted({"apiVersion": "v1", "kind": "Config", **config, "current-context": ""}.items()))


@parser("joined-kubeconfig", lambda: [USERS, ADMIN], mutation.YAML)
def joined(content: bytes, folder: Path) -> None:
    (folder / "k").mkdir()
    made = join.chosen(write(folder / "k", "config", content), "", "lab")
    reduced.harmless(made, "lab")


class _Says(Kubectl):
    """kubectl, if it printed this."""

    def __init__(self, said: str) -> None:
        self._said = said

    def run(self, *words: str, **_: Any) -> str:
        return self._said


NODE: dict[str, Any] = {
    "metadata": {"name": "node-1", "labels": {}, "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "y"}],
        "images": [{"names": ["a"]}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}


@parser("kubectl-version", lambda: [b'{"serverVersion": {"gitVersion": "v1.36.3"}}'], mutation.JSON, 0.5)
def version(content: bytes, folder: Path) -> None:
    reading.version(_Says(text(content)))


def config_map() -> bytes:
    return json.dumps({"data": {"ClusterConfiguration": "networking:\n  podSubnet: 10.244.0.0/16\n"}}).encode()


def in_data(rng: mutation.random.Random, content: bytes) -> bytes:
    """A document inside the ConfigMap is changed."""
    try:
        root = json.loads(content)
        key = rng.choice(list(root["data"]))
        root["data"][key] = text(rng.choice(mutation.YAML)(rng, root["data"][key].encode()))
        return json.dumps(root).encode()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return mutation.in_json(rng, content)


@parser("config-map", lambda: [config_map()], (in_data, in_data, in_data, *mutation.JSON))
def kubeadm_config(content: bytes, folder: Path) -> None:
    reading.document(_Says(text(content)), known.DEFAULT.published.cluster)


@parser(
    "addon-record", lambda: [json.dumps({"data": {"metrics-server": "{}"}}).encode()], (in_data, *mutation.JSON), 0.5
)
def addon_record(content: bytes, folder: Path) -> None:
    record.read(_Says(text(content)))


@parser("node-object", lambda: [json.dumps(NODE).encode()], mutation.JSON)
def node_object(content: bytes, folder: Path) -> None:
    node = _Says(text(content)).get("node", "node-1")
    diagnose.is_ready(node)
    diagnose.brief(node)
    diagnose.signs(node)
    join._is_ours(node, TAG)


TAG = tags.Tag(
    lab="lab", node="node-1", role="worker", os="windows", image="i", user="u", address="10.0.0.1", floating="", plan=""
)
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "kube-system"},
    "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "x"}}}]},
}
EVENT: dict[str, Any] = {
    "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "series": {"lastObservedTime": "2026-01-01T00:00:00Z"},
    "involvedObject": {"kind": "Node", "name": "node-1"},
    "type": "Warning",
}
CALICO: dict[str, Any] = {
    "metadata": {"name": "calico-node", "namespace": "calico-system"},
    "spec": {"vxlanMode": "Always"},
    "data": {"net-conf.json": '{"Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}'},
}
FLANNEL = {**CALICO, "metadata": {"name": "kube-flannel-ds", "namespace": "kube-flannel"}}


def lists() -> list[bytes]:
    return [json.dumps({"items": [one]}).encode() for one in (NODE, POD, EVENT, CALICO, FLANNEL)]


@parser("api-lists", lists, mutation.JSON)
def api_lists(content: bytes, folder: Path) -> None:
    """All readers of lists, one after the other; each refuses by itself."""
    kubectl = _Says(text(content))
    for read in (
        lambda: diagnose.pods(kubectl),
        lambda: logs._events(kubectl, "node-1"),
        lambda: pod_network.waiting_pods(kubectl, "node-1"),
        lambda: objects.Objects.look(kubectl, ["nodes"]).warnings("Node", "node-1"),
    ):
        with suppress(WinlabError):
            read()
    with suppress(WinlabError), understood("The cluster"):
        reading.network(kubectl, kubectl.get("daemonsets")["items"])
    kubectl.get("nodes")


@parser("nearby-kubeconfig", lambda: [USERS, ADMIN], mutation.YAML)
def nearby(content: bytes, folder: Path) -> None:
    list(discovery.in_kubeconfig(write(folder, "config", content)))


FLANNEL_NODE = "flannel.alpha.coreos.com/backend-"
CLUSTER_NODE: dict[str, Any] = {
    "metadata": {
        "name": "cp",
        "labels": {"microk8s.io/cluster": "true"},
        "annotations": {
            "k3s.io/node-args": '["server", "--egress-selector-mode", "disabled"]',
            f"{FLANNEL_NODE}type": "vxlan",
            f"{FLANNEL_NODE}data": '{"VNI": 1}',
        },
    },
    "spec": {"podCIDR": "10.42.0.0/24", "providerID": "k3s://cp"},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "nodeInfo": {"osImage": "x"}},
}
AGENT: dict[str, Any] = {
    "metadata": {"name": "agent", "namespace": "a"},
    "spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}}},
}


@parser(
    "cluster-objects", lambda: [json.dumps({"items": [one]}).encode() for one in (CLUSTER_NODE, AGENT)], mutation.JSON
)
def cluster_objects(content: bytes, folder: Path) -> None:
    """The nodes and DaemonSets of an external cluster, up to the verdict."""
    kubectl = _Says(text(content))
    with suppress(WinlabError), understood("The cluster"):
        [probe._is_eager(row) for row in kubectl.get("daemonsets", "-A")["items"]]
    with understood("The cluster"):
        nodes = tuple(map(probe.node, kubectl.get("nodes")["items"]))
    for version_ in ("v1.36.1", "v1.36.1+k3s1"):
        assert verdict.findings(Seen(version_, nodes), Ends("10.77.0.0/24"), ())


@parser("serving-requests", lambda: [requested()], mutation.JSON)
def serving_requests(content: bytes, folder: Path) -> None:
    fit, _ = identity.serving_requests(_Says(text(content)), "node-1", ["10.0.0.1"])
    assert len(fit) <= 1


def requested() -> bytes:
    """What a kubelet asks for."""
    names = ((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:node-1"))
    builder = x509.CertificateSigningRequestBuilder(x509.Name([x509.NameAttribute(*one) for one in names]))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("node-1")]), critical=False)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "username": "system:node:node-1",
        "usages": ["digital signature", "server auth"],
    }
    return json.dumps({"items": [{"metadata": {"name": "csr-1"}, "spec": spec}]}).encode()
