"""What an add-on is: the pure half of :class:`winlab.design.addon.Addon`, its steps, and its rows in ``winlab test``.

A spec is checked without a hypervisor, so that an add-on's module is imported there, too: it should import what its
steps need inside of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from winlab.design import addon
from winlab.design.addon import AddonSettings, PlannedLab
from winlab.design.problem import Problem

if TYPE_CHECKING:
    from winlab.adapters.kube.kubectl import Kubectl
    from winlab.design.catalog.artifact import Artifact, Obtained
    from winlab.design.plan.addons import AddonPlan
    from winlab.design.plan.tags import Tag
    from winlab.engine.run import Run
    from winlab.engine.step import Step
    from winlab.events import Progress

__all__ = ["Addon", "AddonSettings", "Check", "Cluster", "Installation", "PlannedLab", "Problem"]


@dataclass(frozen=True)
class Installation:
    """One add-on on its way into a lab's cluster.

    :param run: the plan on its way, with the lab's folder.
    :param row: what was decided of the add-on: its versions and artifacts.
    :param obtain: gets artifacts that the add-on requires, such as published manifests, from the lab's source.
    """

    run: Run
    row: AddonPlan
    obtain: Callable[[Sequence[Artifact], Progress], list[Obtained]]


@dataclass(frozen=True)
class Cluster:
    """A cluster under test: its API server, and its nodes."""

    kubectl: Kubectl
    nodes: tuple[Tag, ...]


@dataclass(frozen=True)
class Check:
    """A row of ``winlab test readiness``; it is looked at again and again until it holds.

    :param where: what it is about, for people: ``Linux nodes``.
    :param seconds: how long it may take on hardware.
    :param look: what was seen; raises WinlabError if it does not hold (yet).
    :param windows: it is about Windows nodes: left out where the lab has none.
    :param real: it needs a real Windows: left out in a rehearsal.
    """

    title: str
    where: str
    seconds: float
    look: Callable[[Cluster], str]
    windows: bool = False
    real: bool = False


class Addon(addon.Addon):
    """One thing that a lab can have beside Kubernetes. What an add-on does not need stays as it is."""

    def steps(self, settings: Any, installation: Installation) -> list[Step]:  # noqa: ARG002
        """The steps that install it. This one gives the manifests to the API server and waits until all of it runs.

        They come after the states of :mod:`winlab.steps.states`, and reach states of their own kinds.
        """
        from winlab.addons import install

        return [install.applied(installation)]

    def checks(self, settings: Any) -> list[Check]:  # noqa: ARG002
        """Its rows in ``winlab test readiness``: the first has the add-on's name, further ones a number behind it."""
        return []
