"""What is read of an external cluster, what is known about its distribution, and what follows for workers. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from winlab.design.cni.model import Lack
from winlab.design.system import SystemName

# ok: nothing to do. warning: it works, but you should know. change: something does not work before you change your
# cluster. refused: workers would do harm, or can't work at all
Level = Literal["ok", "warning", "change", "refused"]
Attachment = Literal["nat", "routed", "attached"]  # as the spec's ``network.attachment``
Kubelets = Literal["direct", "tunnel", "agents"]  # how the API server reaches them


@dataclass(frozen=True)
class Finding:
    """One row of the verdict: what it is about, how it stands, what was seen, and what the user does about it."""

    about: str
    level: Level
    says: str
    cure: str = ""


@dataclass(frozen=True)
class SeenNode:
    """A node of the cluster, as far as it matters."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    image: str = ""  # of its system
    addresses: tuple[str, ...] = ()
    pod_cidr: str = ""

    @property
    def address(self) -> str:
        """Its first IPv4 address, by which the cluster's others reach it; empty if it has none."""
        return next((one for one in self.addresses if _is_ipv4(one)), "")


def _is_ipv4(address: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.IPv4Address(address))
    return False


@dataclass(frozen=True)
class Seen:
    """What was read of a cluster. All of it is other people's text.

    :param version: the API server's whole version, such as ``v1.36.1+k3s1``.
    :param daemon_sets: their namespaces by their names.
    :param eager: those that tolerate every taint and select no system, so that they also run on Windows nodes.
    :param profile: the CNI profile that matches its pod network, None if winlab has none.
    :param network: what was recognized of the pod network; *lacks*: what Windows nodes need there.
    :param lacking: what these credentials may not do.
    :param endpoints: host:port of each API server, as pods reach it.
    """

    version: str
    nodes: tuple[SeenNode, ...] = ()
    daemon_sets: Mapping[str, str] = field(default_factory=dict)
    eager: tuple[str, ...] = ()
    kubeadm: bool = False
    rbac: bool = True
    profile: str | None = None
    network: str = ""
    lacks: tuple[Lack, ...] = ()
    lacking: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()

    def annotation(self, name: str) -> list[str]:
        """The values of an annotation on all nodes that have it."""
        return [node.annotations[name] for node in self.nodes if name in node.annotations]


@dataclass(frozen=True)
class Reach:
    """How this host reaches an address of an API server.

    :param why: why it does not; empty if it does.
    :param here: the address is this host's own, which the nodes of a lab reach only if its spec says so.
    """

    address: str
    why: str = ""
    here: bool = False


@dataclass(frozen=True)
class Ends:
    """The lab, and what this host does for it and the cluster to reach each other.

    :param cidr: the lab's inner network.
    :param bridge: the bridge of this host that the cluster's nodes are on; empty if there is none.
    :param trouble: why packets will not pass this host, as a sentence; empty if they will.
    :param command: what root runs on this host about that.
    :param kubelets: how this host reaches the cluster's nodes.
    """

    cidr: str
    attachment: Attachment = "nat"
    bridge: str = ""
    trouble: str = ""
    command: str = ""
    kubelets: Sequence[Reach] = ()


@dataclass(frozen=True)
class Facts:
    """What a distribution's clusters have, unless their makers changed it.

    :param restricts: a node's certificate can change only that node (NodeRestriction).
    :param two_cas: servers' certificates have another CA than clients'.
    :param verifies: the API server verifies the kubelets' certificates.
    :param kubelets: how it reaches them.
    :param tokens: it accepts bootstrap tokens.
    :param allocates: the controller manager gives each node a pod CIDR.
    :param proxies: the systems on whose nodes it runs kube-proxy itself, as a DaemonSet.
    """

    authorization: str
    restricts: bool
    two_cas: bool
    verifies: bool
    kubelets: Kubelets
    tokens: bool
    allocates: bool
    pods: str
    services: str
    port: int
    proxies: tuple[SystemName, ...] = ("linux",)


@dataclass(frozen=True)
class AdminFile:
    """Where the administrator's kubeconfig is on a host of the cluster, and who may read it."""

    path: str
    readers: str


@dataclass(frozen=True)
class Containers:
    """How the containers of a cluster's controllers are labelled.

    :param cluster: the label with the cluster's name.
    :param role: the label with the container's role; *controller*: its value on controllers.
    :param kubeconfig: the command that prints an administrator's kubeconfig; ``{}`` stands for the cluster's name.
    """

    cluster: str
    role: str
    controller: str
    kubeconfig: str


class Kind:
    """One distribution."""

    name: str
    facts: Facts
    contexts: str = ""  # a regular expression for the whole name of its contexts in a kubeconfig
    profile_file: str = ""  # exists if a context is its; {} stands for the context's name
    admin_files: Sequence[AdminFile] = ()
    containers: Containers | None = None
    needs: str  # what a cluster of its default settings needs before it can have Windows workers, in a sentence
    rbac_cure: str = "Start the API server with --authorization-mode=Node,RBAC."
    flannel_cure: str = ""  # how its own flannel gets the VNI and port that Windows has

    def recognizes(self, seen: Seen) -> bool:
        """Whether this distribution made the cluster."""
        raise NotImplementedError

    def pods(self, seen: Seen) -> str:  # noqa: ARG002 - most publish it in another way
        """The network of all pods, if only its nodes' annotations say so."""
        return ""

    def lacks(self, seen: Seen) -> tuple[Lack, ...]:
        """What its network lacks before pods can run on Windows nodes, with the cures of this distribution."""
        return seen.lacks

    def findings(self, seen: Seen) -> list[Finding]:  # noqa: ARG002 - most look at it
        """What is particular to it."""
        return []
