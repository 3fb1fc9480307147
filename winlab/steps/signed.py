"""Waits until a cluster has signed a certificate."""

from __future__ import annotations

from winlab.adapters.kube import signing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.signing import Requested
from winlab.engine.run import Run
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError
from winlab.events import Progress
from winlab.steps import controllers

SILENCE = 120.0  # seconds on hardware: the controller manager signs within one, but may just be starting


def await_certificate(run: Run, kubectl: Kubectl, asked: Requested, whose: str, progress: Progress) -> str:
    """The certificate as PEM, once the cluster has signed it.

    :param whose: for the message.
    :raises ClusterError: it refuses, or does not sign it.
    """

    def look() -> Met[str] | Waiting:
        certificate, says = signing.issued(kubectl, asked)
        return Met(certificate) if certificate else Waiting("waiting for the cluster to sign a certificate", says)

    def give_up(seen: Waiting) -> ClusterError:
        return ClusterError(
            f"The cluster signs no certificate for {whose}.",
            why=f"The request '{asked.name}' says: {seen.sign or 'nothing'}.",
            cure="See whether kube-controller-manager runs: 'winlab kubectl -- get pods -n kube-system'. "
            "Then run the same command again.",
        )

    return controllers.until(run, look, progress, give_up, stall=run.pace.usual(SILENCE))
