"""What an add-on is: the pure half of :class:`winlab.design.addon.Addon`, its steps, and its rows in ``winlab test``.

Checking a spec imports add-ons' modules, and must work without a hypervisor. So they import what their steps need
inside the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from winlab.addons.check import Check, Cluster
from winlab.addons.installation import Installation
from winlab.design import addon
from winlab.design.addon import AddonSettings, PlannedLab, PlannedNode
from winlab.design.node_files import NodeFile, RegistryValue
from winlab.design.problem import Problem
from winlab.design.spec.pools import Pool

if TYPE_CHECKING:
    from winlab.engine.step import Step

__all__ = [
    "Addon",
    "AddonSettings",
    "Check",
    "Cluster",
    "Installation",
    "NodeFile",
    "PlannedLab",
    "PlannedNode",
    "Pool",
    "Problem",
    "RegistryValue",
]


class Addon(addon.Addon):
    """Something that a lab can have in addition to Kubernetes. An add-on overrides only what it needs."""

    def steps(self, settings: Any, installation: Installation) -> list[Step]:  # noqa: ARG002
        """The steps that install it. The default applies the manifests and waits until everything in them runs.

        Steps can wait for the states of :mod:`winlab.steps.states`, and reach states of new kinds.
        """
        from winlab.addons import apply

        return [apply.step(installation)]

    def checks(self, settings: Any) -> list[Check]:  # noqa: ARG002
        """Its rows in ``winlab test readiness``: the first has the add-on's name, the others also a number."""
        return []
