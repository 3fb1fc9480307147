"""The one place that decides which distribution's steps a lab gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from winlab.engine.run import Run
from winlab.steps.distribution.kubeadm import KubeadmSteps
from winlab.steps.interface import ControlPlaneSteps

STEPS: Mapping[str, Callable[[Run], ControlPlaneSteps]] = {"kubeadm": KubeadmSteps}


def of(run: Run) -> ControlPlaneSteps:
    """The steps of the cluster's distribution."""
    return STEPS[run.plan.cluster.distribution.name](run)
