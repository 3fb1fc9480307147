"""The one place that decides which distribution's steps a lab gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from winlab.engine.run import Run
from winlab.steps.distribution.external import ExternalSteps
from winlab.steps.distribution.k3s import K3sSteps
from winlab.steps.distribution.kubeadm import KubeadmSteps
from winlab.steps.interface import ControlPlaneSteps, MembershipSteps

STEPS: Mapping[str, Callable[[Run], ControlPlaneSteps]] = {
    "kubeadm": KubeadmSteps,
    "k3s": lambda run: K3sSteps(run, ExternalSteps(run)),
}


def of(run: Run) -> ControlPlaneSteps:
    """The steps of the distribution that the lab's own cluster is made with."""
    return STEPS[run.plan.cluster.distribution.name](run)


def membership(run: Run) -> MembershipSteps:
    """The steps by which the lab's machines become nodes, of its own cluster or of an external one."""
    return ExternalSteps(run) if run.plan.joins else of(run)
