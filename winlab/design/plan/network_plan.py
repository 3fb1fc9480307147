"""The planned network of a lab. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.spec.proxy import Proxy


class AttachmentPlan(BaseModel):
    """How an external cluster and the lab reach each other without translation.

    ``networks`` are the cluster's. Routed: the lab's router forwards to them as it is, and ``bridge`` is empty.
    Attached: the lab's switch is joined to this bridge of the host, whose own address on it is ``host``. The lab's
    network is then that of the bridge.
    """

    model_config = ConfigDict(frozen=True)

    networks: tuple[str, ...]
    bridge: str = ""
    host: str = ""


class NetworkPlan(BaseModel):
    """The lab's switch and router, and the router's external side.

    ``reach`` is what nodes reach besides their lab and the internet: with ``labs`` other labs that have it, too, with
    ``all`` also this host. ``proxy`` is how they reach the internet, if not directly. ``attachment`` is None if the
    router translates everything that leaves the lab.
    """

    model_config = ConfigDict(frozen=True)

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
