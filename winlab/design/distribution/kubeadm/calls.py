"""The scripts in nodes that run kubeadm, as the contract has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.design.contract.call import LINUX, WINDOWS, Call
from winlab.design.contract.on_both import Changed, Joined
from winlab.design.distribution.kubeadm import config
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.design.distribution.model import ClusterSettings, Member

FILE = "kubeadm.yaml"
# kubeadm checks the form of a token, of a CA's digest and of a certificate key
PLACEHOLDERS = JoinCredentials("tokent.tokentokentokent", (f"sha256:{'0' * 64}",), "0" * 64)


@dataclass(frozen=True, kw_only=True)
class RunKubeadm(Call[Changed]):
    """Run a command of kubeadm; its output is the progress."""

    script, on = "run-kubeadm", LINUX
    arguments: list[str]
    configuration: str = ""

    def texts(self) -> dict[str, str]:
        """The configuration."""
        return {FILE: self.configuration}


@dataclass(frozen=True, kw_only=True)
class Join(Call[Joined]):
    """Join the computer of this name with kubeadm and a JoinConfiguration."""

    script, on = "join", WINDOWS
    configuration: str
    name: str

    def texts(self) -> dict[str, str]:
        """The configuration."""
        return {FILE: self.configuration}


def init(cluster: ClusterSettings, node: Member, token: str, certificate_key: str | None = None) -> RunKubeadm:
    """Make the cluster, on the first controller.

    :param certificate_key: the key that encrypts the certificates kept for further controllers.
    """
    return RunKubeadm(arguments=["init"], configuration=config.init(cluster, node, token, certificate_key))


def reset() -> RunKubeadm:
    """Undo an attempt that was interrupted."""
    return RunKubeadm(arguments=["reset", "--force"])


def join(cluster: ClusterSettings, node: Member, credentials: JoinCredentials) -> RunKubeadm:
    """Join a Linux node to a cluster that exists."""
    make = config.join_controller if node.controller else config.join_worker
    return RunKubeadm(arguments=["join"], configuration=make(cluster, node, credentials))


def join_windows(cluster: ClusterSettings, node: Member, credentials: JoinCredentials) -> Join:
    """Join a Windows node to a cluster that exists."""
    return Join(configuration=config.join_worker(cluster, node, credentials), name=node.name)
