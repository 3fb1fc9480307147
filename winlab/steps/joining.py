"""What a node of any system needs to join the cluster: the cluster's CA and a token; and access for this host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from winlab.adapters.kube import authority as access
from winlab.adapters.kube import existing, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.render import kubeadm
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
        return existing.authority(Kubectl.of(run.folder))
    return access.authority(run.folder.kubeconfig)


@contextmanager
def credentials(run: Run, certificate_key: str | None = None) -> Iterator[kubeadm.JoinCredentials]:
    """A new token, valid inside the context, and the CA's hash.

    :param certificate_key: with which a controller decrypts the shared certificates.
    :raises ClusterError: the API server does not answer.
    """
    with tokens.lent(Kubectl.of(run.folder)) as token:
        yield kubeadm.JoinCredentials(token, (tokens.ca_hash(authority(run)),), certificate_key)


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
