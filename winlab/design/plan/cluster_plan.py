"""The planned cluster. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.catalog import distributions
from winlab.design.catalog.versions import Versions
from winlab.design.distribution import known
from winlab.design.distribution.model import Distribution, Membership
from winlab.design.system import SystemName

PROXIES: tuple[SystemName, ...] = ("linux",)  # most clusters have a DaemonSet kube-proxy


class ClusterPlan(BaseModel):
    """Kubernetes in the lab. ``endpoint`` is the API server for nodes, ``external`` the same for the host.

    ``components`` are the versions of the CNI profile's own parts. ``names`` are all addresses in the API server's
    certificate; an external cluster has none. ``source`` is a checkout of Kubernetes to build from, in place of the
    published version. ``proxies`` are the systems on whose nodes the cluster itself runs kube-proxy. With ``half``
    winlab adds the Windows half of an external cluster's pod network.
    """

    model_config = ConfigDict(frozen=True)

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
