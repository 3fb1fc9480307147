"""What ``kubeadm join`` needs: a token, and the hash of the cluster's CA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from winlab.adapters.kube import tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.distribution.kubeadm import Kubeadm
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.engine.run import Run
from winlab.steps import joining


@contextmanager
def lent(run: Run, certificate_key: str | None = None) -> Iterator[JoinCredentials]:
    """A new token, valid inside the context, and the CA's hash.

    :param certificate_key: with which a controller decrypts the shared certificates.
    :raises ClusterError: the API server does not answer.
    """
    with tokens.lent(Kubectl.of(run.folder), Kubeadm.token_group) as token:
        yield JoinCredentials(token, (tokens.ca_hash(joining.authority(run)),), certificate_key)
