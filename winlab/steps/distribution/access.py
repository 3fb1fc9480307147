"""This host's access to a cluster that a lab made: an administrator's credentials, from its first controller."""

from __future__ import annotations

from collections.abc import Callable

from winlab.adapters.kube import authority, kubeconfig, reduced
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan.node_plan import LinuxNode
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, GuestError, UsageError, logs
from winlab.events import Progress
from winlab.steps import controllers
from winlab.steps.states import API, INITIALISED, KUBECTL, MEMBER

API_SILENCE = 180.0  # seconds on hardware without anything new from an API server whose controller answers


def step(
    run: Run,
    node: LinuxNode,
    complete: Callable[[Progress], object] = lambda _: None,
    is_complete: Callable[[Kubectl], bool] = lambda _: True,
) -> Step:
    """The step that writes this host's kubeconfig, with the credentials from the first controller.

    :param complete: does what the cluster still lacks then.
    :param is_complete: whether that is done.
    """
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
        complete(progress)

    def done() -> bool:
        if not run.folder.has(run.folder.kubeconfig):
            return False
        kubectl = Kubectl.of(run.folder)
        try:
            return kubectl.answers() and is_complete(kubectl)
        except ClusterError:
            return False

    after = [INITIALISED(run.lab, node.name), KUBECTL(run.lab)]
    return Step(API(run.lab), work, done, after, also=[MEMBER(run.lab, node.name)], usual=2)


def _require_same_authority(run: Run, node: LinuxNode, told: reduced.Identity) -> None:
    """Check that the cluster's CA is still the one in the kubeconfig that was read when the cluster was made.

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
            cure="If you replaced the cluster's CA yourself, remove the kubeconfig from the lab's folder. If not, "
            "someone took over the node: destroy the lab and create it again.",
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
            why=f"Its controller runs, and {run.plan.cluster.distribution.name} has set it up.",
            cure="Run the same command again; or destroy the lab and create it again.",
            evidence=f"{logs('controller-1', run.lab)}; "
            f"winlab exec controller-1 --lab {run.lab} -- sudo ctr -n k8s.io tasks ls",
        )

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(API_SILENCE))
