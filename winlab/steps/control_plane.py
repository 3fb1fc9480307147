"""Steps that make the lab's control plane: its first controller, this host's kubeconfig, further controllers."""

from __future__ import annotations

from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.steps.distribution import known
from winlab.steps.states import API, MEMBER


def steps(run: Run) -> list[Step]:
    """The steps from prepared controllers to a cluster of them."""
    own = known.of(run)
    first, *others = [node for node in run.plan.linux_nodes() if node.role == "controller"]
    chain = [own.init(first), own.access(first)]
    before = API(run.lab)
    for node in others:  # one after another: etcd accepts one new member at a time
        chain.append(own.join(node, before))
        before = MEMBER(run.lab, node.name)
    return chain
