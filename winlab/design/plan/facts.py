"""The facts about a host that a plan depends on. ``winlab host setup`` gathers them (:mod:`winlab.host.facts`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

DEFAULT_CIDR = "172.31.240.0/20"
DEFAULT_RESOLVERS = ("1.1.1.1", "9.9.9.9")
TCG_SCALE = 3.0
LEAST_MTU, LARGEST_MTU = 1280, 65535  # of tunnels, in bytes; network.mtu takes no less
HYPERVISOR = "hypervisor-1"  # the name of a site's first hypervisor


def silence(seconds: float, scale: float) -> float:
    """How long a guest may be silent if it may be for *seconds* on hardware; grows more slowly than usual times.

    :param scale: how much slower than on hardware it runs.
    """
    return seconds * max(1.0, scale / 2)


class SiteFacts(BaseModel):
    """The facts that all hypervisors of a site share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    external_cidr: str = Field(default=DEFAULT_CIDR, description="subnet of the external bridge")
    resolvers: list[str] = Field(default_factory=lambda: list(DEFAULT_RESOLVERS), description="DNS servers for guests")
    tunnel_mtu: int | None = Field(  # left out where it is None: an earlier winlab reads the records of such labs
        default=None,
        ge=LEAST_MTU,
        le=LARGEST_MTU,
        exclude_if=lambda value: value is None,
        description="largest packet inside tunnels between hypervisors, in bytes; none: there is one hypervisor",
    )

    @field_validator("external_cidr")
    @classmethod
    def _is_network(cls, value: str) -> str:
        network = ipaddress.IPv4Network(value)
        if network.prefixlen > 24:
            raise ValueError("a lab needs at least a /24")
        return str(network)

    @field_validator("resolvers")
    @classmethod
    def _are_addresses(cls, value: list[str]) -> list[str]:
        return [str(ipaddress.IPv4Address(address)) for address in value]

    @property
    def external_network(self) -> ipaddress.IPv4Network:
        """The external subnet, as a network."""
        return ipaddress.IPv4Network(self.external_cidr)

    @property
    def external_gateway(self) -> str:
        """The host's own address on the external bridge: the first of the subnet."""
        return str(self.external_network[1])


class MachineFacts(BaseModel):
    """The facts about one machine that runs guests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accelerator: Literal["kvm", "tcg"] = "kvm"
    datapath: Literal["system", "netdev"] = "system"
    chassis: str = Field(default="", description="OVS system-id: OVN's name for this host")
    nested: bool = Field(default=False, description="guests may run virtual machines themselves")
    emulator_version: str = ""

    @property
    def scale(self) -> float:
        """Roughly how much slower than on hardware a guest runs (docs/evidence.md); for usual times and limits."""
        return 1.0 if self.accelerator == "kvm" else TCG_SCALE


class Moves(BaseModel):
    """Where a host receives machines that move while they run, and the last day of its certificate for that."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str
    until: str


class Way(BaseModel):
    """How a lab's network is reached through this host without translation: by its router's external address, from an
    external cluster's networks alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    router: str
    networks: tuple[str, ...]


class _Record(BaseModel):
    recorded: bool = Field(default=False, description="False: nothing was recorded, these are the defaults")
    joined: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="the ssh address of the first host of the site that this host has joined; none: it is the first",
    )
    southbound: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="where other hosts reach OVN's southbound database, in OVSDB's notation; none: there are no others",
    )
    databases: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="addresses of the hosts that have OVN's databases, or wait for them, by chassis; none: one host",
    )
    tunnel_mtus: dict[str, int] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="on a site's first host: the largest packet inside each host's tunnels, in bytes, by chassis",
    )
    external_addresses: dict[str, str] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="on a site's first host: the addresses of the others on their external bridges, by chassis",
    )
    external_address: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="on a host that has joined a site: its address on its external bridge",
    )
    gateway_mac: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="on a host that has joined a site: the MAC of the first host's external bridge",
    )
    moves: Moves | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="where this host receives machines that move while they run, and until when its certificate for "
        "that is valid; none: it has none",
    )
    attached: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="bridges of this host, such as a container network's, that labs can be attached to",
    )
    ways: dict[str, Way] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="networks of labs that external clusters reach through this host without translation",
    )


class HostFacts(MachineFacts, SiteFacts, _Record):
    """What this host's file and a plan record: the facts of a site and those of its only hypervisor, in one value."""

    def with_tunnels(self, found: Mapping[str, int], hosts: Collection[str] | None = None) -> HostFacts:
        """The first host's facts with what was found of tunnels.

        :param found: the largest packet inside a host's tunnels, in bytes, by chassis.
        :param hosts: the chassis of the site, if others have left it; None: all that are known. A host that was just
            admitted is not in OVN's databases yet.
        """
        mtus = {**self.tunnel_mtus, **found}
        mtus = {chassis: mtu for chassis, mtu in mtus.items() if hosts is None or chassis in hosts}
        return self.model_copy(update={"tunnel_mtus": mtus, "tunnel_mtu": min(mtus.values(), default=None)})

    @property
    def bridge_address(self) -> str:
        """This host's address on its external bridge."""
        return self.external_address or self.external_gateway

    @property
    def site(self) -> SiteFacts:
        """The facts of the site."""
        return SiteFacts.model_construct(**self.model_dump(include=set(SiteFacts.model_fields)))

    @property
    def machine(self) -> MachineFacts:
        """The facts of the hypervisor."""
        return MachineFacts.model_construct(**self.model_dump(include=set(MachineFacts.model_fields)))
