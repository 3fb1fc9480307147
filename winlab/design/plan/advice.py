"""What would be better, though the plan works. Pure."""

from __future__ import annotations

from winlab.design.catalog import recipes, versions
from winlab.design.catalog.versions import build_number
from winlab.design.plan import resolvers
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.spec.sizes import human


def advice(plan: Plan) -> list[str]:
    """Sentences for the user who makes this plan: name servers left out, old builds of Windows."""
    said = (_old_build(node) for node in plan.windows_nodes() if not node.windows.updates)
    return [*resolvers.left_out(plan), *dict.fromkeys(sentence for sentence in said if sentence is not None)]


def small_controllers(plan: Plan) -> list[str]:
    """A warning if controllers have less than the distribution asks for: making the cluster would fail late."""
    controllers = [node for node in plan.nodes if node.role == "controller"]
    if plan.kubernetes is None or not controllers:
        return []
    distribution = plan.kubernetes.distribution
    cpus, memory = distribution.least
    node = controllers[0]  # all are the same
    if node.cpus >= cpus and node.memory_mib >= memory:
        return []
    return [
        f"The controllers are too small: each has {node.cpus} {'CPU' if node.cpus == 1 else 'CPUs'} and "
        f"{human(node.memory_mib)} of memory. {distribution.name} asks for at least {cpus} CPUs and {human(memory)}, "
        "and may fail with less. Set controllers.cpus and controllers.memory."
    ]


def _old_build(node: WindowsNode) -> str | None:
    """The advice about Microsoft's evaluation medium, whose build is known; other media contain theirs."""
    windows = node.windows
    if windows.own_medium:
        return None
    rules = versions.load().windows.get(windows.release)
    evaluations = recipes.get(node.image).evaluations
    medium = next((one for one in evaluations if windows.medium in ("", one.sha256)), None)
    if rules is None or rules.advised is None or medium is None or medium.build is None:
        return None
    if build_number(medium.build) >= build_number(rules.advised):
        return None
    return (
        f"{medium.file} has Windows Server {windows.release} build {medium.build}, older than {rules.advised}"
        f" ({rules.gain}). With a golden image, --set workers.updates=true installs Windows' updates once."
    )
