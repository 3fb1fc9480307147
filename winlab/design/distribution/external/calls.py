"""The script that makes a machine a node of an external cluster, as the contract has it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from winlab.design.contract.call import BOTH, LINUX_ONLY, WINDOWS_ONLY, Call
from winlab.design.contract.on_both import Joined
from winlab.design.distribution.external import files
from winlab.design.distribution.model import ClusterSettings, Member


@dataclass(frozen=True)
class Credentials:
    """What a node gets of its cluster: kubeconfigs of its kubelet and its kube-proxy, and the CA of the API's client.

    ``proxy`` is empty where the cluster runs kube-proxy itself, and on Windows, where its own script has it.
    """

    kubelet: str = field(repr=False)
    client_ca: str
    proxy: str = field(default="", repr=False)


PLACEHOLDERS = Credentials(
    "<kubeconfig with the node's first certificate>",
    "<CA of the API server's client certificate>",
    "<kubeconfig with the token of kube-proxy's service account>",
)


@dataclass(frozen=True, kw_only=True)
class BecomeMember(Call[Joined]):
    """Start the kubelet with these credentials, and wait until it has taken them.

    On a node that is a member, only what differs is written.
    """

    script, on = "member", BOTH
    kubeconfig: str = field(repr=False)
    client_ca: str
    proxy: str = field(default="", repr=False, metadata=LINUX_ONLY)
    configuration: str = field(default="", metadata=WINDOWS_ONLY)  # Linux nodes have it as one of their files
    name: str = field(default="", metadata=WINDOWS_ONLY)

    def texts(self) -> dict[str, str]:
        """The configuration."""
        return {"kubelet.yaml": self.configuration} if self.configuration else {}


def become_member(cluster: ClusterSettings, node: Member, credentials: Credentials) -> BecomeMember:
    """Make a machine a node."""
    return BecomeMember(
        kubeconfig=credentials.kubelet,
        client_ca=credentials.client_ca,
        proxy=credentials.proxy if files.runs_proxy(cluster, node) else "",
        configuration="" if node.system.flags_file else files.kubelet_configuration(cluster, node),
        name=node.name,
    )
