"""The identity that a lab keeps from another one, its origin: what a running copy's guests believe about themselves.

A copy of a running lab resumes with the MACs, addresses, names and certificates of its origin. Its domains, ports and
external addresses are its own. Pure.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class KeptNode(BaseModel):
    """What a node keeps.

    ``floating`` is the external address in the node's certificate, ``instance`` the id by which cloud-init knows that
    it has set the machine up.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    mac: str
    address: str
    floating: str
    instance: str


class Kept(BaseModel):
    """What a lab keeps from its origin: its inner network, its DNS zone, and the names in its certificates.

    The origin's plan makes it (:meth:`winlab.design.plan.model.Plan.as_kept`). ``names`` are those in the API server's
    certificate. Nodes that the origin does not have get an identity from the lab itself.
    """

    model_config = ConfigDict(frozen=True)

    zone: str
    cidr: str
    gateway_mac: str
    names: tuple[str, ...]
    nodes: tuple[KeptNode, ...]

    def node(self, name: str) -> KeptNode | None:
        """What the node *name* keeps; None if the origin does not have it."""
        return next((node for node in self.nodes if node.name == name), None)
