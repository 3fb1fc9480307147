"""The steps that make a control plane by kubeadm: the first controller, this host's kubeconfig, further controllers."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial

from winlab.adapters.kube import authority, kubeconfig, reduced, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import contract
from winlab.design.distribution.kubeadm import calls
from winlab.design.plan.model import LinuxNode
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, GuestError, UsageError, logs
from winlab.events import Progress
from winlab.steps import again, controllers
from winlab.steps.distribution.kubeadm import administrator, credentials
from winlab.steps.distribution.kubeadm.running import is_joined, run_kubeadm
from winlab.steps.states import API, INITIALISED, KUBECTL, MEMBER, PREPARED

API_SILENCE = 180.0  # seconds on hardware without anything new from an API server whose controller answers


def init(run: Run, node: LinuxNode) -> Step:
    """The step that makes the cluster on its first controller."""

    def work(progress: Progress) -> None:
        call = calls.init(nodes.cluster(run.plan), nodes.member(run.plan, node), tokens.new())
        with run.node(node) as there:
            run_kubeadm(there, call, progress, again.is_on(run, node))

    reaches, after = INITIALISED(run.lab, node.name), [PREPARED(run.lab, node.name)]
    return Step(reaches, work, run.asks(node, is_joined), after, usual=run.pace.usual(45))


def access(run: Run, node: LinuxNode) -> Step:
    """The step that writes this host's kubeconfig, with the credentials from the first controller."""
    distribution = run.plan.cluster.distribution

    def work(progress: Progress) -> None:
        progress.say(f"reading {distribution.admin_file}")
        with run.node(node) as there:
            text = there.execute(["sudo", "cat", distribution.admin_file])
        identity = reduced.identity(text, node.name, distribution)
        _require_same_authority(run, node, identity)
        plan = run.plan
        own = kubeconfig.for_lab(identity, plan.lab, plan.cluster.external, plan.network.external_cidr)
        run.folder.write(run.folder.kubeconfig, own)
        _await_api(run, progress)

    def done() -> bool:
        return run.folder.has(run.folder.kubeconfig) and Kubectl.of(run.folder).answers()

    after = [INITIALISED(run.lab, node.name), KUBECTL(run.lab)]
    return Step(API(run.lab), work, done, after, also=[MEMBER(run.lab, node.name)], usual=2)


def _require_same_authority(run: Run, node: LinuxNode, told: reduced.Identity) -> None:
    """Check that the cluster's CA is still the one in the kubeconfig that was read after kubeadm's init.

    :raises GuestError: it is another one.
    """
    try:
        held = frozenset(authority.key_hashes(authority.authority(run.folder.kubeconfig).encode()))
    except UsageError:
        return  # none is held
    if told.keys != held:
        raise GuestError(
            f"'{node.name}' shows another CA than the cluster had before.",
            why=f"It was {', '.join(sorted(held))}; now it is {', '.join(sorted(told.keys))}.",
            cure="If you made the cluster's CA anew yourself, remove the kubeconfig from the lab's folder. If not, "
            "somebody took over the node: destroy the lab and create it again.",
            evidence=str(run.folder.kubeconfig),
        )


def _await_api(run: Run, progress: Progress) -> None:
    """Wait until the API server answers, which takes a while after its controller restarted.

    :raises ClusterError: it does not answer.
    """
    where = run.plan.cluster.external

    def look() -> Met[None] | Waiting:
        rows = Kubectl.of(run.folder).unready()
        return Met(None) if rows is None else Waiting(f"waiting for the API server at {where}", rows)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            f"The API server at {where} does not answer.",
            why="Its controller runs, and kubeadm has set it up.",
            cure="Run the same command again; or destroy the lab and create it again.",
            evidence=f"{logs('controller-1', run.lab)}; "
            f"winlab exec controller-1 --lab {run.lab} -- sudo ctr -n k8s.io tasks ls",
        )

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(API_SILENCE))


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
                other.run(contract.ForgetMember(address=node.address), progress.say)

        with credentials.lent(run, key) as own, run.node(node) as there:
            call = calls.join(cluster, nodes.member(run.plan, node), own)
            prepare = partial(administrator.hand_over, run, first, there)
            run_kubeadm(there, call, progress, again.is_on(run, node), leave, prepare)

    after = [before, PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, run.asks(node, is_joined), after, usual=run.pace.usual(60))
