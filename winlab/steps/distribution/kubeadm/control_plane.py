"""The steps that make a control plane by kubeadm: the first controller, and further ones."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial

from winlab.adapters.kube import tokens
from winlab.design.contract import on_linux
from winlab.design.distribution.kubeadm import calls
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import again
from winlab.steps.distribution.kubeadm import administrator, credentials
from winlab.steps.distribution.kubeadm.running import is_joined, run_kubeadm
from winlab.steps.states import INITIALISED, MEMBER, PREPARED


def init(run: Run, node: LinuxNode) -> Step:
    """The step that makes the cluster on its first controller."""

    def work(progress: Progress) -> None:
        call = calls.init(nodes.cluster(run.plan), nodes.member(run.plan, node), tokens.new())
        with run.node(node) as there:
            run_kubeadm(there, call, progress, again.is_on(run, node))

    reaches, after = INITIALISED(run.lab, node.name), [PREPARED(run.lab, node.name)]
    return Step(reaches, work, run.asks(node, is_joined), after, usual=run.pace.usual(45))


def join(run: Run, node: LinuxNode, before: State) -> Step:
    """The step that adds a further controller."""
    first = next(other for other in run.plan.linux_nodes() if other.role == "controller")
    cluster = nodes.cluster(run.plan)

    def work(progress: Progress) -> None:
        key = secrets.token_hex(32)  # AES-256: encrypts the certificates that the other controllers fetch
        upload = calls.init(cluster, nodes.member(run.plan, first), tokens.new(), key)
        with run.node(first) as there:
            progress.say(f"handing over the certificates from {first.name}")
            words = ["init", "phase", "upload-certs", "--upload-certs"]
            call = replace(upload, arguments=words)
            # its output is not reported: it contains the key
            again.act(there, "upload-certs", progress, lambda: there.run(call), again.is_on(run, first))

        def leave() -> None:
            # kubeadm's reset does it only for a node whose own kubelet was set up; and two members of which one is
            # gone have no majority, so that the whole cluster would stop
            with run.node(first) as other:
                other.run(on_linux.ForgetMember(address=node.address), progress.say)

        with credentials.lent(run, key) as own, run.node(node) as there:
            call = calls.join(cluster, nodes.member(run.plan, node), own)
            prepare = partial(administrator.hand_over, run, first, there)
            run_kubeadm(there, call, progress, again.is_on(run, node), leave, prepare)

    after = [before, PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, run.asks(node, is_joined), after, usual=run.pace.usual(60))
