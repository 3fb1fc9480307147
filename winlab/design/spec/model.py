"""The spec: what the user asks for, as frozen values. Each field is declared once, by ``fields.option``."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PrivateAttr, field_validator, model_validator

from winlab.design import system as systems
from winlab.design.addon import ByName
from winlab.design.catalog import distributions
from winlab.design.cni import ProfileName
from winlab.design.spec import addon_pools, hosts, networks, paths
from winlab.design.spec.fields import LINUX, Model, of, option
from winlab.design.spec.load import changed, load
from winlab.design.spec.pools import LINUX_POOL, LinuxWorkers, Pool, places
from winlab.design.spec.proxy import Proxy
from winlab.design.spec.sizes import Mib
from winlab.design.spec.systems import LinuxSystem, require, system

Reach = Literal["internet", "labs", "all"]
Attachment = Literal["nat", "routed", "attached"]


class Controllers(Model):
    """The Linux nodes that run the control plane."""

    model_config = of(LINUX)

    count: Literal[0, 1, 3, 5] = option(1, "Number of controllers; 0: the lab has no cluster", example=3)
    os: LinuxSystem = option("debian-13", "Their system: a Linux image from images/", example="debian-13")
    cpus: int = option(2, "Virtual CPUs of each controller", ge=1, le=64, example=4)
    memory: Mib = option(3072, "Memory of each controller", ge=512, le=1 << 20, unit="MiB", example="4GiB")
    disk: Mib = option(
        20 * 1024,
        "Disk of each controller; it takes only the space that is used",
        ge=4096,
        le=1 << 26,
        unit="MiB",
        example="40GiB",
    )
    hypervisor: str | None = hosts.pinned()
    apart: bool = hosts.apart()

    @field_validator("os")
    @classmethod
    def _linux(cls, value: str) -> str:
        return require(systems.LINUX, value, "a controller")


class Kubernetes(Model):
    """Which Kubernetes, from the combinations that are known to be good (images/kubernetes/known-good.yaml)."""

    distribution: distributions.Name = option(
        distributions.DEFAULT,
        "What the control plane is made with (docs/distributions.md)",
        example=distributions.NAMES[1],
    )
    version: str | None = option(
        None,
        "Version of Kubernetes, such as 1.36 or v1.36.3; compatibility is checked before anything is touched",
        otherwise="the default of images/kubernetes/known-good.yaml, or the newest before it that fits the workers",
        example="1.36",
    )
    source: Path | None = option(
        None,
        "A checkout of Kubernetes to build from, with your own patches. A bundle made with it holds what was built; "
        "with that bundle, leave the field out",
        otherwise="none",
        example="src/kubernetes",
    )
    untested: bool = option(False, "Allow a version that is in no known-good combination", example=True)
    pod_cidr: str = option("10.244.0.0/16", "Network of the pods: private, /12 to /22", example="10.200.0.0/16")
    service_cidr: str = option("10.96.0.0/16", "Network of the services: private, /12 to /22", example="10.112.0.0/16")

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        # YAML reads 1.40 as the number 1.4
        return str(getattr(value, "text", value)) if isinstance(value, float) else value

    @field_validator("pod_cidr", "service_cidr")
    @classmethod
    def _private(cls, value: str) -> str:
        return networks.private(value, 12, 22, "10.244.0.0/16")


class Network(Model):
    """The lab's inner network. Labs may use the same one; each has its own switch and router."""

    cidr: str = option("10.77.0.0/24", "The network of the nodes: private, /16 to /25", example="10.78.0.0/23")
    dns: tuple[str, ...] = option(
        (), "Resolvers of the nodes for names outside the lab", otherwise="the host's own", example=["192.0.2.53"]
    )
    mtu: int = option(
        1500,
        "Largest packet between nodes; 1500 at most in this version",
        otherwise="1500, or what tunnels between hypervisors take if it is less",
        ge=1280,
        le=9000,
        unit="bytes",
        example=1400,
    )
    cni: ProfileName | None = option(
        None,
        "CNI profile, which connects the pods (docs/cni.md)",
        otherwise="l3 in a rehearsal and where all nodes run Linux, else calico-vxlan",
        example="flannel-vxlan",
    )
    reach: Reach = option(
        "internet",
        "What nodes reach besides their lab: internet; labs: also other labs that allow it, too; all: also this host's "
        "own services",
        example="labs",
    )
    floating_block: int | None = option(
        None,
        "Which 16 of the external addresses the lab takes",
        ge=1,
        otherwise="chosen by the lab's name; the next one if another lab has it",
        example=3,
    )
    attachment: Attachment = option(
        "nat",
        "How workers and the external cluster that they join reach each other (docs/attachment.md); attached: in the "
        "same network of this host",
        example="attached",
    )
    routed: tuple[str, ...] = option(
        (),
        "The cluster's networks towards which nothing is translated, if the attachment is routed",
        otherwise="the addresses of its nodes, and its pods",
        example=["192.0.2.0/24"],
    )
    proxy: Proxy = Proxy()

    @field_validator("routed")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ipaddress.IPv4Network(network)) for network in value)

    @field_validator("cidr")
    @classmethod
    def _private(cls, value: str) -> str:
        return networks.private(value, 16, 25, "10.77.0.0/24")

    @field_validator("dns")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            ipaddress.IPv4Address(address)
        return value


def _listed(value: Any) -> Any:
    """One mapping is a list of one pool."""
    return [{} if value is None else value] if value is None or isinstance(value, dict | Pool) else value


class Spec(Model):
    """A whole lab."""

    controllers: Controllers = Controllers()
    workers: Annotated[tuple[Pool, ...], BeforeValidator(_listed, json_schema_input_type=Pool | list[Pool])] = (Pool(),)
    linux_workers: LinuxWorkers = LinuxWorkers()
    hypervisors: int = option(
        1, "How many of the site's hypervisors the lab uses (docs/placement.md)", ge=1, le=hosts.MOST, example=2
    )
    network: Network = Network()
    kubernetes: Kubernetes = Kubernetes()
    addons: ByName = option(
        {}, "Add-ons by name, each with its settings (docs/addons.md)", otherwise="none", example={"metrics-server": {}}
    )

    _roots: tuple[Path, ...] = PrivateAttr(())

    @classmethod
    def load(
        cls,
        source: str = "1-1-1",
        changes: Iterable[str] = (),
        *,
        os: str | None = None,
        iso: str | Path | None = None,
        rehearse: bool = False,
        allow: Iterable[str | Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Spec:
        """Load the spec *source*: controllers-workers-hypervisors, a name in specs/, or a YAML file.

        :param changes: ``path=value``, as ``--set`` takes them.
        :param os: the workers' system, an image from images/, if there is one pool.
        :param iso: a Windows Server ISO for the workers, if there is one pool.
        :param rehearse: stand-in media replace Windows in every pool; Linux pools are unchanged.
        :param allow: folders besides the spec's own in which its file may name files.
        :param environment: where ``WINLAB_*`` variables are looked up; default: the process's environment.
        :raises UsageError: the spec is invalid; the message says what, in which line, and the cure.
        """
        made, roots = load(
            cls, source, changes, os=os, iso=iso, rehearse=rehearse, allow=allow, environment=environment
        )
        made._roots = roots
        if rehearse:
            addon_pools.check_rehearsal(addon_pools.pools(made.addons))
        return made

    def changed(
        self,
        changes: Iterable[str] = (),
        *,
        os: str | None = None,
        iso: str | Path | None = None,
        rehearse: bool = False,
        allow: Iterable[str | Path] = (),
    ) -> Spec:
        """The spec with changes, which are given as to :meth:`load`. Variables of the environment don't count.

        :raises UsageError: a change is not valid.
        """
        made: Spec = changed(self, changes, os=os, iso=iso, rehearse=rehearse)
        if rehearse:
            addon_pools.check_rehearsal(addon_pools.pools(made.addons))
        return made.within((*self.roots, *paths.roots(None, allow)))

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders, without links, into which links below a folder that the spec names may lead."""
        return self._roots

    def within(self, roots: Iterable[Path]) -> Spec:
        """The spec with other :attr:`roots`."""
        other = self.model_copy()
        other._roots = tuple(roots)
        return other

    def on_one_host(self) -> Spec:
        """The spec without what it says about hypervisors: for a plan that makes no machines."""
        free = {"hypervisor": None, "apart": False}
        groups = {name: getattr(self, name).model_copy(update=free) for name in ("controllers", "linux_workers")}
        workers = tuple(pool.model_copy(update=free) for pool in self.workers)
        return self.model_copy(update={**groups, "workers": workers, "hypervisors": 1})

    def called(self, name: str) -> Spec:
        """The spec with another name for its first pool."""
        first, *others = self.workers
        return self.model_copy(update={"workers": (first.model_copy(update={"name": name}), *others)})

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All pools of workers: the spec's own, ``linux_workers`` last, then those that its add-ons request."""
        linux = (self.linux_workers.pool(),) if self.linux_workers.count else ()
        return (*self.workers, *linux, *(pool for _, pool in addon_pools.each(addon_pools.pools(self.addons))))

    @model_validator(mode="after")
    def _names_differ(self) -> Spec:
        seen: set[str] = set()
        for number, pool in enumerate(self.workers):
            if number and "name" not in pool.model_fields_set:
                raise ValueError(f"workers.{number}: each pool after the first needs its own name")
            if pool.name in seen:
                raise ValueError(f"workers.{number}.name: two pools are called '{pool.name}'")
            seen.add(pool.name)
            if pool.name == LINUX_POOL and system(pool.os).os != LINUX_POOL:
                raise ValueError(f"workers.{number}.name: a pool called '{LINUX_POOL}' runs Linux, not '{pool.os}'")
        if LINUX_POOL in seen and self.linux_workers.count:
            raise ValueError(f"linux_workers.count: there is a pool called '{LINUX_POOL}' already")
        addon_pools.check_names(addon_pools.pools(self.addons), seen)
        return self

    @model_validator(mode="after")
    def _machines_fit(self) -> Spec:
        """Without controllers there is no cluster: nothing can join it."""
        if self.controllers.count:
            return self
        for number, pool in enumerate(self.workers):
            if pool.count and pool.cluster:
                raise ValueError(
                    f"workers.{number}.cluster: without controllers there is no cluster that the nodes of "
                    f"'{pool.name}' could join; say false, or have controllers"
                )
        if self.linux_workers.count:
            raise ValueError(
                "linux_workers.count: without controllers there is no cluster that they could join; make them a pool "
                "with 'cluster: false' under workers"
            )
        if self.addons:
            raise ValueError("addons: they are installed into the lab's cluster, and without controllers it has none")
        if self.kubernetes.source is not None:
            raise ValueError("kubernetes.source: without controllers there is no cluster that it could be built for")
        if not any(pool.count for pool in self.workers):
            raise ValueError("controllers.count: with 0 and without machines under workers the lab would be empty")
        return self

    @model_validator(mode="after")
    def _hypervisors_fit(self) -> Spec:
        groups: dict[str, hosts.Group] = {"controllers": self.controllers, "linux_workers": self.linux_workers}
        groups |= {f"workers.{number}": pool for number, pool in enumerate(self.workers)}
        others = [pool for _, pool in addon_pools.each(addon_pools.pools(self.addons))]
        hosts.check(self.hypervisors, groups, others)
        return self

    @model_validator(mode="after")
    def _addresses_suffice(self) -> Spec:
        last = ipaddress.IPv4Network(self.network.cidr).num_addresses - 2
        given = places(self.pools)
        every = [(f"workers.{number}.count", "", pool) for number, pool in enumerate(self.workers)]
        for name, pool in addon_pools.each(addon_pools.pools(self.addons)):
            every.append((f"addons.{name}", f" of the add-on '{name}'", pool))
        for place, whose, pool in every:
            room, called = given[pool.name], f"'{pool.name}'{whose}"
            if pool.count > len(room):
                raise ValueError(f"{place}: the pool {called} can have {len(room)} nodes at most")
            if pool.count and room[0] + pool.count > last:
                raise ValueError(
                    f"network.cidr: {self.network.cidr} is too small for {pool.count} nodes called {called}; "
                    f"they take addresses from the {_ordinal(room[0])} on"
                )
        return self


def _ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
