"""What Linux and Windows nodes have in common. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.design.catalog.recipes import Recipe
from winlab.design.plan import addresses
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.kept import KeptNode
from winlab.design.plan.stock import Stock


@dataclass(frozen=True)
class Place:
    """Where a node is: its lab, its name, its inner address, and the one by which the host reaches it.

    ``kept`` is what the node keeps from another lab's, if anything; ``address`` is then the same.
    """

    lab: str
    name: str
    address: str
    floating: str
    kept: KeptNode | None = None

    def fields(self) -> dict[str, str]:
        """The fields of a node that follow from it."""
        return {
            "name": self.name,
            "domain": addresses.domain(self.lab, self.name),
            "uuid": addresses.make_uuid(self.lab, self.name),
            "mac": addresses.make_mac(self.lab, self.name) if self.kept is None else self.kept.mac,
            "port": addresses.make_uuid(self.lab, self.name, "port"),
            "address": self.address,
            "floating": self.floating,
            "hypervisor": HYPERVISOR,
        }

    def volume(self, what: str) -> str:
        """The name of a volume of the node: *what* is ``disk.qcow2``."""
        return f"{self.lab}.{self.name}.{what}"


def base_volume(recipe: Recipe, stock: Stock, medium: str = "") -> str:
    """The name of the volume that holds an image: by its key in the cache, or by its medium's content.

    :param medium: the SHA-256 of the installation medium, if it is known.
    """
    suffix = "qcow2" if recipe.format == "qcow2" else "iso"
    known = stock.images.get(recipe.name) or medium or "media-not-given"
    return f"base-{recipe.name}-{known[:16]}.{suffix}"
