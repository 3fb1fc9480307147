"""The distributions that are known: the files of the folder ``kinds``. Pure, but for listing that folder once."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from winlab.design.clusters import kinds
from winlab.design.clusters.model import Kind, Seen


class Other(Kind):
    """A cluster of a distribution that has no file here: what every conformant control plane publishes is enough."""

    name = "other"
    needs = "Calico with VXLAN, or flannel with VNI 4096 and port 4789; any other network with --set network.cni=l3"

    def recognizes(self, seen: Seen) -> bool:  # noqa: ARG002 - all are
        """Always."""
        return True


@cache
def every() -> tuple[Kind, ...]:
    """All of them, by name. One that builds on another comes before it."""
    modules = (importlib.import_module(f"{kinds.__name__}.{row.name}") for row in pkgutil.iter_modules(kinds.__path__))
    found: list[Kind] = sorted((module.KIND for module in modules), key=lambda kind: kind.name)
    return tuple(sorted(found, key=lambda kind: -len(type(kind).__mro__)))


def of(seen: Seen) -> Kind:
    """What made a cluster."""
    other = Other()
    other.facts = replace(get("kubeadm").facts, verifies=True)
    return next((kind for kind in every() if kind.recognizes(seen)), other)


def get(name: str) -> Kind:
    """The distribution of this name."""
    return next(kind for kind in every() if kind.name == name)
