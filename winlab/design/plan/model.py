"""The plan: a whole lab as a frozen value. Pure; :mod:`winlab.design.plan.make` fills it in.

A plan holds no paths of a host: files that a spec names are identified by their content (``stock.Material``).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.plan.cluster_plan import ClusterPlan
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts, SiteFacts
from winlab.design.plan.kept import Kept, KeptNode
from winlab.design.plan.network_plan import NetworkPlan
from winlab.design.plan.node_plan import LinuxNode, NodePlan, WindowsNode
from winlab.errors import NotFoundError

POOL_LABEL = "winlab.internal/pool"  # of Kubernetes' nodes, where a lab has several pools or an add-on's


class Plan(BaseModel):
    """A whole lab.

    ``kubernetes`` is its cluster; None: it has none, and all of its machines are standalone. ``builders`` are the
    labs that make the golden images of the Windows nodes, one each. For such a lab, ``golden`` is the key of its image.
    ``kept`` is the identity that the lab keeps from another one. At a site with several hypervisors, ``hosts`` has the
    facts of those that the nodes are on, and ``placed`` says why each node is on its own.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    lab: str
    host: HostFacts
    network: NetworkPlan
    kubernetes: ClusterPlan | None = Field(alias="cluster")
    nodes: tuple[NodePlan, ...]
    addons: tuple[AddonPlan, ...] = ()
    builders: tuple[Plan, ...] = ()
    golden: str | None = None
    kept: Kept | None = None
    hosts: dict[str, MachineFacts] = Field(default={}, exclude_if=lambda value: not value)
    placed: dict[str, str] = Field(default={}, exclude_if=lambda value: not value)

    @property
    def digest(self) -> str:
        """Identifies the lab: 16 hex digits of the SHA-256 over what lasts while it exists.

        This lets ``create`` resume a lab with a newer winlab and newer images, a moved cache or a renamed medium.
        The host's abilities (checked at every boot) and resolvers don't count either, nor which hypervisors the nodes
        are on: they may move.
        """
        lasting = {
            "lab": self.lab,
            "network": self.network.lasting(),
            "cluster": self.kubernetes and self.kubernetes.lasting(),
            # with the domain's name in earlier versions: the digests of their labs stay the same
            "nodes": [
                {**node.lasting(), "domain": f"winlab-{self.lab}-{node.name}", "hypervisor": HYPERVISOR}
                for node in self.nodes
            ],
            # the nodes of their pools are among the nodes above
            "addons": [row.model_dump(mode="json", exclude={"artifacts", "pools"}) for row in self.addons],
        }
        if self.kept is not None:
            lasting["kept"] = self.kept.model_dump(mode="json")
        return sha256_of(lasting)[:16]

    @property
    def components(self) -> dict[str, str]:
        """The versions of extensions' parts, by name: the CNI profile's and the add-ons'."""
        own = {} if self.kubernetes is None else self.kubernetes.components
        return {**own, **{name: version for row in self.addons for name, version in row.versions.items()}}

    @property
    def site(self) -> SiteFacts:
        """The facts of the lab's site."""
        return self.host.site

    @property
    def hypervisors(self) -> dict[str, MachineFacts]:
        """The facts of the hypervisors that the nodes are on, by name."""
        only = self.host.machine
        return {name: self.hosts.get(name, only) for name in dict.fromkeys(node.hypervisor for node in self.nodes)}

    @property
    def external_addresses(self) -> tuple[str, ...]:
        """The router's external address and those of the nodes."""
        return (self.network.router_external, *(node.floating for node in self.nodes))

    @property
    def cluster(self) -> ClusterPlan:
        """The lab's cluster.

        :raises NotFoundError: it has none.
        """
        if self.kubernetes is None:
            raise NotFoundError(
                f"The lab '{self.lab}' has no cluster.",
                why="It was made without controllers: its machines stand by themselves.",
                cure="Make a lab that has one: 'winlab create --spec 1-1-1 --lab NAME'.",
            )
        return self.kubernetes

    @property
    def joins(self) -> bool:
        """Whether the lab's nodes join an external cluster."""
        return self.kubernetes is not None and not self.kubernetes.made

    @property
    def members(self) -> tuple[NodePlan, ...]:
        """The nodes of the cluster."""
        return tuple(node for node in self.nodes if node.is_member)

    @property
    def beside(self) -> tuple[NodePlan, ...]:
        """The machines beside the cluster."""
        return tuple(node for node in self.nodes if not node.is_member)

    @property
    def supplied(self) -> tuple[NodePlan, ...]:
        """The nodes that get a payload CD: members, and machines that have winlab's scripts from it."""
        return tuple(node for node in self.nodes if node.is_member or node.system.cd_scripts)

    @property
    def alias(self) -> tuple[str, str] | None:
        """The API server's name in an external cluster and the address that the user gave for it, if any."""
        if not self.joins:
            return None
        name, address = (where.rpartition(":")[0] for where in (self.cluster.endpoint, self.cluster.external))
        return (name, address) if name != address else None

    def without_secrets(self) -> Plan:
        """The plan without secrets: placeholders for product keys and for the proxy's name and password."""
        return self.model_copy(
            update={
                "network": self.network.without_secrets(),
                "nodes": tuple(node.without_secrets() for node in self.nodes),
                "builders": tuple(builder.without_secrets() for builder in self.builders),
            }
        )

    def certified(self, node: NodePlan) -> str:
        """The external address in a node's certificate: its own, unless it keeps its certificate from another lab."""
        kept = None if self.kept is None else self.kept.node(node.name)
        return node.floating if kept is None else kept.floating

    def instance(self, node: NodePlan) -> str:
        """The id by which cloud-init knows that it has set a node up: the machine's own, unless it keeps another."""
        kept = None if self.kept is None else self.kept.node(node.name)
        return node.uuid if kept is None else kept.instance

    def as_kept(self) -> Kept:
        """What a copy of the lab keeps. A copy of a copy keeps what the first one kept."""
        return Kept(
            zone=self.network.domain,
            cidr=self.network.cidr,
            gateway_mac=self.network.gateway_mac,
            names=() if self.kubernetes is None else self.cluster.names,
            nodes=tuple(
                KeptNode(
                    name=node.name,
                    mac=node.mac,
                    address=node.address,
                    floating=self.certified(node),
                    instance=self.instance(node),
                )
                for node in self.nodes
            ),
        )

    def windows_nodes(self) -> tuple[WindowsNode, ...]:
        """The nodes that run Windows."""
        return tuple(node for node in self.nodes if isinstance(node, WindowsNode))

    def linux_nodes(self) -> tuple[LinuxNode, ...]:
        """The nodes that run Linux."""
        return tuple(node for node in self.nodes if isinstance(node, LinuxNode))

    def clones(self, golden: str | None = None) -> tuple[WindowsNode, ...]:
        """The nodes whose disks are based on a golden image, or on the one with this key."""
        return tuple(node for node in self.windows_nodes() if node.is_clone and golden in (None, node.windows.golden))

    def pools(self) -> tuple[str, ...]:
        """The names of the pools that have nodes of the cluster."""
        return tuple(dict.fromkeys(node.pool for node in self.members if node.pool))

    def labels(self, node: NodePlan) -> dict[str, str]:
        """The labels for the Kubernetes node: the pool's, if the lab has several pools or the pool is an add-on's."""
        requested = any(node.pool in row.pools for row in self.addons)  # the add-on's manifests may select it
        return {POOL_LABEL: node.pool} if node.pool and (len(self.pools()) > 1 or requested) else {}

    def node(self, name: str) -> NodePlan:
        """The node *name*; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


def sha256_of(value: Any) -> str:
    """The SHA-256 of a value's JSON, with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
