"""The interface of every CNI profile. Pure: profiles render, others apply.

A profile is a folder under winlab/design/cni/ with ``PROFILES`` in its ``__init__.py`` and a ``pins.yaml``. It may also
be the same in a separate package, with an entry point of the group ``winlab.cni``. docs/cni.md explains how to write
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from winlab.design import system
from winlab.design.catalog import releases
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.cni.known import Known
from winlab.design.cni.model import (
    VXLAN_OVERHEAD,
    Answer,
    Encapsulation,
    Endpoint,
    HnsNetwork,
    Masquerade,
    NodeNetwork,
    Object,
    Patch,
    PodNetwork,
    ProxyMode,
    ProxyNetwork,
    Question,
    Recognized,
    Route,
    Support,
    Versions,
)
from winlab.design.problem import Problem
from winlab.design.system import SystemName

WINDOWS_RELEASES = ("2019", "2022", "2025")


class Profile(ABC):
    """One way of connecting pods, on both systems. Methods that a profile does not need return nothing."""

    name: str
    encapsulation: Encapsulation = "none"
    vni: int | None = None
    port: int | None = None
    no_rehearsal: str = ""  # why it can't take part in a rehearsal; empty: it can
    proxy_mode: ProxyMode = "nftables"  # of kube-proxy on Linux
    daemon_sets: tuple[str, ...] = ()  # what runs it on the nodes, for the readiness check; other recipes' names, too
    windows_daemon_sets: tuple[str, ...] = ()  # those of an external cluster that run it on its Windows nodes
    has_half: bool = False  # whether :meth:`windows_half` has something for an external cluster
    backend: tuple[str, int] | None = None  # flannel's own, with its VNI, as it annotates the cluster's nodes
    pins: Path | None = None  # its pins.yaml
    pods: str = ""  # for docs/cni.md: what connects pods on Linux / on Windows
    carrier: str = ""  # for docs/cni.md: who carries the routes

    # --- what is known of its releases

    def load(self) -> Known:
        """Read its file once: its versions, pins and known-good releases of Windows.

        :raises HostError: the file can't be used.
        """
        return Known() if self.pins is None else releases.read(self.pins, Known)

    @property
    def known(self) -> Known:
        """What :meth:`load` read."""
        return self.load()

    # --- what has to be obtained

    @abstractmethod
    def programs(self, versions: Versions) -> list[Program]:
        """The files for the folder of CNI plug-ins of each system."""

    def published(self, versions: Versions) -> list[Manifest]:  # noqa: ARG002
        """Manifests of the project itself, to be applied first and in this order. :meth:`images` has theirs, too."""
        return []

    def images(self, versions: Versions) -> list[ContainerImage]:  # noqa: ARG002
        """The images of :meth:`published` and of what :meth:`manifests` makes."""
        return []

    # --- what is given to the API server

    def manifests(
        self,
        network: PodNetwork,  # noqa: ARG002
        nodes: Sequence[NodeNetwork],  # noqa: ARG002
        endpoint: Endpoint,  # noqa: ARG002
        versions: Versions,  # noqa: ARG002
    ) -> list[Object]:
        """The objects that winlab writes itself, in the order in which to apply them."""
        return []

    def patches(self, nodes: Sequence[NodeNetwork]) -> list[Patch]:  # noqa: ARG002
        """Changes to objects that the profile's own controllers create, applied once they exist."""
        return []

    # --- what is given to the nodes

    def linux_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:  # noqa: ARG002
        """Files for /etc/cni/net.d of a Linux node.

        :raises WinlabError: the profile needs the node's pod CIDR, and there is none yet.
        """
        return {}

    def windows_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:  # noqa: ARG002
        r"""Files for ``C:\etc\cni\net.d`` of a Windows node.

        :raises WinlabError: the profile needs the node's pod CIDR, and there is none yet.
        """
        return {}

    def hns_network(self, network: PodNetwork, node: NodeNetwork) -> HnsNetwork | None:  # noqa: ARG002
        """The HNS network that winlab has to make on a Windows node; None if something else makes it.

        :raises WinlabError: the profile needs the node's pod CIDR, and there is none yet.
        """
        return None

    @abstractmethod
    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:
        """What kube-proxy on this Windows node needs.

        :raises WinlabError: the profile needs the node's pod CIDR, and there is none yet.
        """

    def windows_features(self) -> tuple[str, ...]:
        """The features to install with Install-WindowsFeature."""
        return ("Containers",)

    # --- the way of the packets

    def masquerade(self, network: PodNetwork) -> Masquerade | None:  # noqa: ARG002
        """The source NAT that winlab has to set up on Linux nodes; None if something else does that."""
        return None

    def routes(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> dict[str, list[Route]]:  # noqa: ARG002
        """By the node's name, the routes to the other nodes' pods that winlab has to set on it.

        :raises WinlabError: the profile needs the nodes' pod CIDRs, and one has none yet.
        """
        return {node.name: [] for node in nodes}

    def router_routes(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> list[Route]:  # noqa: ARG002
        """The routes that the lab's router carries.

        :raises WinlabError: the profile needs the nodes' pod CIDRs, and one has none yet.
        """
        return []

    def router_snat(self, network: PodNetwork) -> tuple[str, ...]:  # noqa: ARG002
        """Inner networks, besides the lab's own, for which the lab's router does source NAT on the way out."""
        return ()

    def pod_mtu(self, network: PodNetwork, os: SystemName) -> int:
        """The MTU of a pod in bytes. On Windows HNS decides it; winlab can't change it."""
        linux = network.mtu - (VXLAN_OVERHEAD if network.encapsulation == "vxlan" else 0)
        return system.get(os).pod_mtu or linux

    # --- an external cluster

    def windows_half(
        self,
        network: PodNetwork,  # noqa: ARG002
        endpoint: Endpoint,  # noqa: ARG002
    ) -> list[Object]:
        """What an external cluster needs for Windows nodes if it runs the profile on Linux nodes alone.

        Its objects have names of winlab's own, because all of them are deleted with the last of winlab's Windows nodes.
        Called only with :attr:`has_half`.
        """
        return []

    def questions(self, daemon_sets: Mapping[str, str]) -> Sequence[Question]:  # noqa: ARG002
        """What to read from a cluster with these DaemonSets (names, and their namespaces) to recognize it."""
        return ()

    def recognize(
        self,
        daemon_sets: Mapping[str, str],  # noqa: ARG002
        answers: Mapping[Question, Answer],  # noqa: ARG002
    ) -> Recognized | None:
        """How this profile's project connects the cluster's pods; None if it does not."""
        return None

    # --- what can be relied on

    @abstractmethod
    def windows_support(self, release: str) -> Support:
        """As :meth:`support`, for a Windows release that winlab knows."""

    def support(self, release: str) -> Support:
        """How far the profile can be relied on with a Windows release, such as ``2022``. All support Linux."""
        if release not in WINDOWS_RELEASES:
            return Support(
                "refused",
                f"winlab does not know Windows Server '{release}'; it knows {', '.join(WINDOWS_RELEASES)}.",
            )
        return self.windows_support(release)

    def own_problems(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> list[Problem]:  # noqa: ARG002
        """Problems that only this profile has."""
        return []
