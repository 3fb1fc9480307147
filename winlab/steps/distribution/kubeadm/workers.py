"""How workers join by ``kubeadm join``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from winlab.design.contract.call import Call
from winlab.design.distribution.kubeadm import calls
from winlab.design.plan.node_plan import LinuxNode, WindowsNode
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import again
from winlab.steps.distribution.kubeadm import credentials
from winlab.steps.distribution.kubeadm.running import is_joined, run_kubeadm, while_late
from winlab.steps.states import MEMBER, PREPARED


def linux(run: Run, node: LinuxNode, before: State) -> Step:
    """The step of a Linux worker."""

    def work(progress: Progress) -> None:
        with credentials.lent(run) as own, run.node(node) as there:
            call = calls.join(nodes.cluster(run.plan), nodes.member(run.plan, node), own)
            run_kubeadm(there, call, progress, again.is_on(run, node))

    after = [before, PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, run.asks(node, is_joined), after, usual=run.pace.usual(20))


def windows(run: Run, node: WindowsNode, do: Callable[[Call[Any]], object], progress: Progress) -> None:
    """Join a Windows worker.

    :param do: runs a script in it.
    """

    def work() -> None:
        with credentials.lent(run) as own:
            do(calls.join_windows(nodes.cluster(run.plan), nodes.member(run.plan, node), own))

    while_late(progress, work)
