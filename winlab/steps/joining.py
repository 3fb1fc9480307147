"""The cluster's CA, by which nodes recognize it; and this host's access to an external cluster."""

from __future__ import annotations

from winlab.adapters.kube import authority as access
from winlab.adapters.kube import existing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ClusterError, NotFoundError
from winlab.events import Progress
from winlab.steps.states import API, KUBECTL


def authority(run: Run) -> str:
    """The cluster's CA as PEM, by which nodes recognize the cluster.

    :raises ClusterError: the API server does not answer.
    """
    if run.plan.joins:
        return existing.authority(Kubectl.of(run.folder), run.plan.cluster.distribution)
    return access.authority(run.folder.kubeconfig)


def given_kubeconfig(run: Run, admin: str) -> Step:
    """The step that gives this host access to an external cluster.

    :param admin: that cluster's kubeconfig.
    """

    def work(progress: Progress) -> None:
        if not admin:
            raise NotFoundError(
                f"The kubeconfig of the cluster that the lab '{run.lab}' joined is lost.",
                why=f"'{run.folder.kubeconfig}' does not exist.",
                cure="Run 'winlab join' again, as before: it writes it anew.",
            )
        run.folder.write(run.folder.kubeconfig, admin)
        progress.say(f"asking the API server at {run.plan.cluster.external}")
        if not Kubectl.of(run.folder).answers():
            raise ClusterError(
                "The cluster that the lab should join no longer answers.",
                cure="Make sure that it runs, then run the same command again.",
                evidence=f"winlab kubectl --lab {run.plan.lab} -- get --raw=/readyz",
            )

    def done() -> bool:
        kept = run.folder.kubeconfig
        return kept.exists() and kept.read_text() == admin and Kubectl.of(run.folder).answers()

    return Step(API(run.lab), work, done, [KUBECTL(run.lab)], usual=2)
