"""How machines become nodes, and what makes a control plane; the cluster and its node, for rendering files. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from winlab.design.catalog.releases import Releases
from winlab.design.catalog.versions import Versions
from winlab.design.cni.model import ConfigMapEntry
from winlab.design.contract.call import Call
from winlab.design.system import LINUX, System, SystemName, Taint


@dataclass(frozen=True)
class ClusterSettings:
    """What all nodes share. ``endpoint`` is the API server's host:port; ``emulated`` means no KVM: all is slow."""

    versions: Versions
    endpoint: str
    names: tuple[str, ...]  # all addresses and names that users and nodes have for the API server
    pod_cidr: str
    service_cidr: str
    domain: str = "cluster.local"
    dns: str = ""  # the address of its name server
    proxies: tuple[SystemName, ...] = ("linux",)  # the systems on which it runs kube-proxy itself
    proxy_mode: Literal["nftables", "iptables"] = "nftables"
    preloaded: bool = False  # the images are already in the nodes and are never pulled
    emulated: bool = False


@dataclass(frozen=True)
class Member:
    """One node. ``taints``: None leaves the distribution's own, () means none at all."""

    name: str
    address: str
    system: System = LINUX
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] | None = None
    controller: bool = False


@dataclass(frozen=True)
class Published:
    """Where a cluster keeps what winlab must know before nodes can join it.

    :param access: a kubeconfig with the API server's URL and the CA.
    :param cluster: a document with ``networking``: the networks of pods and services.
    :param kubelet: the configuration of all kubelets.
    """

    access: ConfigMapEntry
    cluster: ConfigMapEntry
    kubelet: ConfigMapEntry


class Membership(ABC):
    """One way to make a machine a node of a cluster: what it needs, and what it is given."""

    own_programs: tuple[str, ...]  # those that only it needs, from Kubernetes' source (cmd/); users can replace them
    own_files: tuple[str, ...]  # of Linux nodes, besides what Paths.own has
    services: tuple[str, ...]  # of a Linux node, started before it joins
    control_plane: tuple[str, ...]  # the images that only controllers need
    one_for_all: tuple[str, ...]  # the images that an external cluster already has
    bootstraps: bool  # the kubelet begins with a bootstrap kubeconfig

    @abstractmethod
    def programs(self, system: System) -> tuple[tuple[str, str], ...]:
        """What nodes need on their search path, each with the component whose version it has."""

    @abstractmethod
    def images(self, system: System) -> tuple[tuple[str, str], ...]:
        """The same for container images in Kubernetes' registry."""

    @abstractmethod
    def linux_files(self, cluster: ClusterSettings, node: Member) -> dict[str, str]:
        """The files of a Linux node, by path, before it joins."""

    @abstractmethod
    def linux_call(self, cluster: ClusterSettings, node: Member, *, first: bool) -> Call[Any]:
        """The script that makes a prepared Linux node a member, with placeholders for secrets.

        :param first: it is the first controller, which makes the cluster.
        """

    @abstractmethod
    def windows_call(self, cluster: ClusterSettings, node: Member) -> Call[Any]:
        """The script that makes a prepared Windows node a member, with placeholders for secrets."""


class Distribution(Membership):
    """One way to make a control plane, and to join nodes to it. Its steps: winlab/steps/distribution/."""

    name: str  # also of its program, for messages
    admin_file: str  # the administrator's kubeconfig on a controller
    renewal: str  # the command that renews a controller's certificates
    proxies: tuple[SystemName, ...]  # the systems on whose nodes it runs kube-proxy itself, as a DaemonSet
    in_pods: bool  # its control plane and kube-proxy run in pods
    copies: bool  # its administrator can lose all rights: a copy of a lab must refuse that of its origin
    restarts: tuple[str, ...]  # the programs of a Linux node after whose change its kubelet starts again
    least: tuple[int, int]  # the processors and the memory, in MiB, that its documentation asks for a controller

    @property
    def known(self) -> Releases:
        """Its own parts: their versions, and where they are published. None for those of Kubernetes itself."""
        return Releases()

    def why_not(self, versions: Versions) -> str:  # noqa: ARG002 - most make a cluster of every version
        """Why it can't make a cluster of these versions; empty if it can."""
        return ""


def controller_taints(linux_workers: int) -> tuple[Taint, ...] | None:
    """The taints of controllers: none if no other Linux node could run CoreDNS and the like."""
    return None if linux_workers else ()


def worker_taints(system: System) -> tuple[Taint, ...] | None:
    """The taints of workers: on Windows only pods that ask for it run."""
    return None if system.taint is None else (system.taint,)
