"""The types of the CNI profiles: the pod network, the nodes' parts of it, and what follows from it. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from winlab.design import system
from winlab.design.system import System, SystemName
from winlab.errors import WinlabError

Encapsulation = Literal["none", "vxlan"]
Level = Literal["supported", "experimental", "refused"]
Object = dict[str, Any]  # a Kubernetes object, as the API server takes it
ProxyMode = Literal["nftables", "iptables"]
Versions = Mapping[str, str]  # every version of a lab by name: kubernetes, cni_plugins, ..., and the profile's own

NODE_PREFIX = 24  # kube-controller-manager gives each node one /24 (its --node-cidr-mask-size)
VXLAN_OVERHEAD = 50  # bytes: outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8
WINDOWS_VNI = 4096  # Windows takes no smaller VNI (flannel's Documentation/backends.md; Calico's default is the same)
WINDOWS_PORT = 4789  # nor any other UDP port for VXLAN
# In the certificate of each API server that pods use; source: kubernetes.io/docs/setup/best-practices/certificates
SERVER_NAME = "kubernetes.default.svc"
HALF = "winlab.internal/half"  # a label of what winlab adds to an external cluster's network, with the profile's name


@dataclass(frozen=True)
class PodNetwork:
    """The network of the pods, decided once for both systems; made by :func:`winlab.design.cni.network`.

    ``mtu`` is that of the nodes' NICs. ``vni`` and ``port`` are None where nothing is encapsulated. ``lab_cidr`` holds
    the nodes' addresses, ``external_cidr`` the lab's floating ones.
    """

    profile: str
    pod_cidr: str
    service_cidr: str
    lab_cidr: str
    external_cidr: str
    mtu: int
    cluster_dns: str
    cluster_domain: str
    encapsulation: Encapsulation
    vni: int | None = None
    port: int | None = None


@dataclass(frozen=True)
class NodeNetwork:
    """A node's part: its address, and the pod CIDR it was given (``.spec.podCIDR``; None: not given yet)."""

    name: str
    os: SystemName
    address: str
    pod_cidr: str | None = None

    @property
    def system(self) -> System:
        """What the node runs."""
        return system.get(self.os)

    @property
    def pods(self) -> ipaddress.IPv4Network:
        """The node's pod CIDR.

        :raises WinlabError: it has none yet.
        """
        if self.pod_cidr is None:
            raise WinlabError(
                f"Node '{self.name}' has no pod CIDR yet.",
                why="kube-controller-manager gives one to each node that has joined, if it knows the pods' network.",
                cure="See 'kubectl get node -o jsonpath={.items[*].spec.podCIDR}' and the logs of "
                "kube-controller-manager.",
            )
        return ipaddress.IPv4Network(self.pod_cidr)


@dataclass(frozen=True)
class Endpoint:
    """Where the API server answers without a service network: a controller's address.

    ``name`` is one in its certificate, if the host may not be: as with an external cluster.
    """

    host: str
    port: int = 6443
    name: str = ""


@dataclass(frozen=True)
class Patch:
    """A merge patch for an object that something else creates; it can be applied only once the object exists."""

    resource: str
    name: str
    body: Object


def has_hns(nodes: Iterable[NodeNetwork]) -> bool:
    """Whether HNS makes the pods' network on one of the nodes."""
    return any(node.system.hns for node in nodes)


@dataclass(frozen=True, order=True)
class Route:
    """Packets for *cidr* go to *via*, a node's address."""

    cidr: str
    via: str


@dataclass(frozen=True)
class Masquerade:
    """Source NAT on a Linux node: for packets from *source*, except those to one of *exceptions*."""

    source: str
    exceptions: tuple[str, ...]


@dataclass(frozen=True)
class ProxyNetwork:
    """What kube-proxy needs on Windows: the HNS network, and on an overlay its source address.

    The address is either decided here (``source_vip``) or that of an HNS endpoint on the node (``source_endpoint``).
    """

    hns_network: str
    source_vip: str | None = None
    source_endpoint: str | None = None


class HnsEndpoint(TypedDict):
    """The node's own endpoint in an l2bridge network: the gateway of its pods."""

    name: str
    address: str


class HnsNetwork(TypedDict):
    """An HNS network that winlab makes; ``node_address`` identifies the adapter it uses."""

    type: Literal["L2Bridge"]
    name: str
    subnet: str
    gateway: str
    endpoint: HnsEndpoint
    node_address: str


@dataclass(frozen=True)
class Support:
    """How far a profile can be relied on with a system, and why."""

    level: Level
    text: str


@dataclass(frozen=True)
class ConfigMapEntry:
    """A query to an external cluster: the YAML or JSON document under a key of a ConfigMap."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True)
class AllObjects:
    """A query to an external cluster: all objects of a kind, such as ``ippools.crd.projectcalico.org``."""

    resource: str


Question = ConfigMapEntry | AllObjects


@dataclass(frozen=True)
class Unreadable:
    """The result of a query that the cluster does not answer, and why."""

    why: str


Answer = Object | list[Object] | Unreadable


@dataclass(frozen=True)
class Lack:
    """What an external cluster's network lacks for Windows nodes, and what the user does about it."""

    says: str
    cure: str


@dataclass(frozen=True)
class Recognized:
    """What connects the pods of an external cluster.

    ``profile`` is None if the cluster uses the profile's project in a way that Windows nodes can't take part in;
    ``note`` says what was found. Pods on Windows don't start before what it ``lacks`` is there.
    """

    profile: str | None
    note: str
    lacks: tuple[Lack, ...] = ()
