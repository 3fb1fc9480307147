"""The one place that decides which system's steps a node gets."""

from __future__ import annotations

from winlab.design.plan.node_plan import NodePlan, WindowsNode
from winlab.engine.run import Run
from winlab.steps.interface import SystemSteps
from winlab.steps.linux.system import LinuxSteps
from winlab.steps.windows.system import WindowsSteps


def of(run: Run, node: NodePlan) -> SystemSteps:
    """The node's own part of the steps."""
    return WindowsSteps(run, node) if isinstance(node, WindowsNode) else LinuxSteps(run, node)
