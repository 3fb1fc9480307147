"""The plan's types: a whole lab as frozen values. Pure; :mod:`winlab.design.plan.make` fills them in.

A plan holds no paths of a host: files that a spec names are identified by their content (:class:`Material`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.catalog import distributions
from winlab.design.catalog.versions import Versions
from winlab.design.distribution import known
from winlab.design.distribution.model import Distribution, Membership
from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts, SiteFacts
from winlab.design.plan.kept import Kept, KeptNode
from winlab.design.plan.stock import Material, Template
from winlab.design.spec.proxy import Proxy
from winlab.design.system import LINUX, WINDOWS, System, SystemName
from winlab.errors import NotFoundError

POOL_LABEL = "winlab.internal/pool"  # of Kubernetes' nodes, where a lab has several pools or an add-on's


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class VolumePlan(_Model):
    """A storage volume. ``backing`` is the volume below it; ``capacity_mib`` is None if the content decides."""

    name: str
    role: Literal["disk", "seed", "answer", "media", "base"]
    format: Literal["qcow2", "raw"]
    backing: str | None = None
    capacity_mib: int | None = None


class WindowsPlan(_Model):
    """What only a Windows node has.

    ``medium``, ``drivers`` and ``openssh`` are SHA-256 digests: of the installation medium (empty if none is known),
    the virtio drivers and OpenSSH's archive. ``own_medium`` and ``own_drivers`` say whether the spec itself names them.
    ``golden`` is the key of the golden image that the node is cloned from. ``tainted``: whether the node keeps pods for
    other systems away.
    """

    computer_name: str
    image_name: str
    product_key: str | None
    time_zone: str
    language: str
    locale: str
    keyboard: str
    release: str
    medium: str = ""
    own_medium: bool = False
    drivers: str | None = None
    own_drivers: bool = False
    openssh: str | None = None
    scripts: tuple[Material, ...] = ()
    files: tuple[Material, ...] = ()
    extra_drivers: tuple[tuple[Material, ...], ...] = ()
    template: Template | None = None
    updates: bool = False
    golden: str | None = None
    tainted: bool = True

    def lasting(self) -> dict[str, Any]:
        """What identifies it while its lab exists.

        A medium or drivers that the spec names count by content, additions by name. What the cache decides does not
        count: which catalog medium, which published drivers, which golden image.
        """
        plain = self.model_dump(
            mode="json",
            exclude={"medium", "drivers", "openssh", "scripts", "files", "extra_drivers", "template", "tainted"},
        )
        return {
            **plain,
            **({} if self.tainted else {"tainted": False}),  # labs that were made before there was a choice have it
            "golden": self.golden is not None,
            "medium": self.medium if self.own_medium else None,
            "drivers": self.drivers if self.own_drivers else None,
            "openssh": self.openssh is not None,
            "scripts": [script.name for script in self.scripts],
            "files": [file.name for file in self.files],
            "extra_drivers": [[file.name for file in folder] for folder in self.extra_drivers],
            "template": self.template and self.template.name,
        }


class _Node(_Model):
    """What all machines have.

    ``port`` is the UUID of the port in OVN, ``address`` the inner address, and ``floating`` the one by which the host
    reaches the machine. ``pool`` is empty for controllers. A ``machine`` is beside the cluster.
    """

    name: str
    role: Literal["controller", "worker", "machine"]
    pool: str = ""
    image: str
    user: str
    domain: str
    uuid: str
    mac: str
    port: str
    address: str
    floating: str
    hypervisor: str
    cpus: int
    memory_mib: int
    disk_mib: int
    firmware: Literal["uefi", "bios"] = "uefi"
    bus: Literal["virtio-scsi", "virtio-blk", "sata"]
    nic: Literal["virtio", "e1000e"]
    volumes: tuple[VolumePlan, ...]

    @property
    def is_member(self) -> bool:
        """Whether it is a node of the cluster; otherwise it is beside the cluster."""
        return self.role != "machine"

    def has(self, role: str) -> bool:
        """Whether the node has a volume with this role."""
        return any(volume.role == role for volume in self.volumes)

    def volume(self, role: str) -> VolumePlan:
        """The node's volume with this role; ValueError if it has none."""
        for volume in self.volumes:
            if volume.role == role:
                return volume
        raise ValueError(f"{self.name} has no {role} volume")

    def _lasting(self) -> dict[str, Any]:
        # names of base volumes depend on the cache, and a clone's disk uses one; nodes' names include the pool's;
        # the domain is identified by its UUID, whatever its name
        volumes = [volume.model_dump(exclude={"backing"}) for volume in self.volumes if volume.role != "base"]
        return {**self.model_dump(mode="json", exclude={"volumes", "windows", "pool", "domain"}), "volumes": volumes}


class LinuxNode(_Node):
    """A machine that runs Linux."""

    os: Literal["linux"] = "linux"
    windows: None = None

    @property
    def system(self) -> System:
        """What the node runs."""
        return LINUX

    @property
    def is_clone(self) -> bool:
        """Whether its disk is based on a golden image; only Windows nodes' are."""
        return False

    @property
    def own_medium(self) -> bool:
        """Whether it is installed from a medium that the spec names; only Windows is installed."""
        return False

    @property
    def time_class(self) -> str:
        """The class of nodes that take the same time: the image."""
        return self.image

    @property
    def tainted(self) -> bool:
        """Whether it has its system's taint, if there is one."""
        return True

    def installed_with(self) -> dict[str, Any]:
        """What it was given once, when its system was installed: nothing."""
        return {}

    def lasting(self) -> dict[str, Any]:
        """What identifies the node while its lab exists."""
        return self._lasting()

    def without_secrets(self) -> LinuxNode:
        """The node without secrets."""
        return self


class WindowsNode(_Node):
    """A machine that runs Windows."""

    os: Literal["windows"] = "windows"
    windows: WindowsPlan

    @property
    def system(self) -> System:
        """What the node runs."""
        return WINDOWS

    @property
    def is_clone(self) -> bool:
        """Whether its disk is based on a golden image."""
        return self.windows.golden is not None

    @property
    def own_medium(self) -> bool:
        """Whether it is installed from a medium that the spec names."""
        return self.windows.own_medium

    @property
    def time_class(self) -> str:
        """The class of nodes that take the same time: the image, and whether Windows is installed or cloned."""
        return f"{self.image} {'cloned' if self.is_clone else 'installed'}"

    @property
    def tainted(self) -> bool:
        """Whether it has its system's taint."""
        return self.windows.tainted

    def installed_with(self) -> dict[str, Any]:
        """What it was given once, when Windows was installed, as far as it identifies the node."""
        return self.windows.lasting()

    def lasting(self) -> dict[str, Any]:
        """What identifies the node while its lab exists."""
        return {**self._lasting(), "windows": self.installed_with()}

    def without_secrets(self) -> WindowsNode:
        """The node with a placeholder for its product key."""
        if self.windows.product_key is None:
            return self
        return self.changed(product_key="<product key>")

    def changed(self, **fields: Any) -> WindowsNode:
        """The node with other fields of its ``windows``."""
        return self.model_copy(update={"windows": self.windows.model_copy(update=fields)})


NodePlan: TypeAlias = LinuxNode | WindowsNode
PROXIES: tuple[SystemName, ...] = ("linux",)  # most clusters have a DaemonSet kube-proxy


class ClusterPlan(_Model):
    """Kubernetes in the lab. ``endpoint`` is the API server for nodes, ``external`` the same for the host.

    ``components`` are the versions of the CNI profile's own parts. ``names`` are all addresses in the API server's
    certificate; an external cluster has none. ``source`` is a checkout of Kubernetes to build from, in place of the
    published version. ``proxies`` are the systems on whose nodes the cluster itself runs kube-proxy. With ``half``
    winlab adds the Windows half of an external cluster's pod network.
    """

    versions: Versions
    components: dict[str, str] = {}
    profile: str
    pod_cidr: str
    service_cidr: str
    dns: str
    domain: str
    endpoint: str
    external: str
    names: tuple[str, ...]
    source: Path | None = None
    proxies: tuple[SystemName, ...] = Field(default=PROXIES, exclude_if=lambda value: value == PROXIES)
    made_with: str = Field(default=distributions.DEFAULT, exclude_if=lambda value: value == distributions.DEFAULT)
    half: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def made(self) -> bool:
        """Whether it is the lab's own; False: its nodes join an external cluster."""
        return bool(self.names)

    @property
    def distribution(self) -> Distribution:
        """What its control plane is made with."""
        return known.BY_NAME[self.made_with]

    @property
    def membership(self) -> Membership:
        """How nodes become members of it."""
        return self.distribution if self.made else known.EXTERNAL

    @property
    def identifies(self) -> bool:
        """Whether winlab asks for its workers' certificates and accounts: they don't bootstrap themselves."""
        return not self.membership.bootstraps

    @property
    def releases(self) -> dict[str, str]:
        """Every version by name: Kubernetes' and its companions', the distribution's and the CNI profile's parts."""
        return {**self.versions.by_name, **self.components}

    def lasting(self) -> dict[str, Any]:
        """What identifies the cluster while it exists; for a checkout, only whether there is one."""
        return {**self.model_dump(mode="json", exclude={"source"}), "source": self.source is not None}


class AttachmentPlan(_Model):
    """How an external cluster and the lab reach each other without translation.

    ``networks`` are the cluster's. Routed: the lab's router forwards to them as it is, and ``bridge`` is empty.
    Attached: the lab's switch is joined to this bridge of the host, whose own address on it is ``host``. The lab's
    network is then that of the bridge.
    """

    networks: tuple[str, ...]
    bridge: str = ""
    host: str = ""


class NetworkPlan(_Model):
    """The lab's switch and router, and the router's external side.

    ``reach`` is what nodes reach besides their lab and the internet: with ``labs`` other labs that have it, too, with
    ``all`` also this host. ``proxy`` is how they reach the internet, if not directly. ``attachment`` is None if the
    router translates everything that leaves the lab.
    """

    switch: str
    router: str
    cidr: str
    gateway: str
    gateway_mac: str
    domain: str
    resolvers: tuple[str, ...]
    mtu: int
    external_switch: str
    external_cidr: str
    external_gateway: str
    router_external: str
    router_external_mac: str
    reach: Literal["internet", "labs", "all"] = "internet"
    proxy: Proxy | None = None
    attachment: AttachmentPlan | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def mode(self) -> Literal["nat", "routed", "attached"]:
        """The kind of attachment."""
        if self.attachment is None:
            return "nat"
        return "attached" if self.attachment.bridge else "routed"

    def lasting(self) -> dict[str, Any]:
        """What identifies the network while its lab exists. The default reach is left out: older labs have none.

        Of the attachment only its kind counts: the cluster may get more nodes, and the bridge another name.
        """
        usual = {"reach"} if self.reach == "internet" else set()
        plain = self.model_dump(mode="json", exclude={"resolvers", "proxy", "attachment", *usual})
        return plain if self.mode == "nat" else {**plain, "attachment": self.mode}

    def without_secrets(self) -> NetworkPlan:
        """The network with a placeholder for the name and password of its proxy."""
        return self if self.proxy is None else self.model_copy(update={"proxy": self.proxy.without_logins()})


class Plan(_Model):
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


def windows_releases(nodes: Iterable[NodePlan]) -> list[str]:
    """The releases of Windows that the nodes run, sorted; none if all run Linux."""
    return sorted({node.windows.release for node in nodes if isinstance(node, WindowsNode)})


def sha256_of(value: Any) -> str:
    """The SHA-256 of a value's JSON, with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
