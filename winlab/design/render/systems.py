"""Which of linux.py and windows.py renders a node. Pure."""

from __future__ import annotations

from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan, WindowsNode
from winlab.design.render.linux import LinuxFiles
from winlab.design.render.nodes import NodeFiles
from winlab.design.render.windows import WindowsFiles


def of(plan: Plan, node: NodePlan) -> NodeFiles:
    """What *node* is given."""
    return WindowsFiles(plan, node) if isinstance(node, WindowsNode) else LinuxFiles(plan, node)
