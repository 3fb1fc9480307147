"""The script that starts k3s on a controller, as the contract has it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from winlab.design.contract.call import LINUX, Call
from winlab.design.contract.on_both import Joined
from winlab.design.distribution.model import ClusterSettings

PLACEHOLDER = "<token of the cluster's servers>"


@dataclass(frozen=True, kw_only=True)
class RunK3s(Call[Joined]):
    """Start k3s as it is configured, and wait until its API server and its kubelet are ready.

    Without ``server`` it makes a cluster; with it, the controller joins that cluster's etcd.
    """

    script, on = "run-k3s", LINUX
    server: str = ""  # a URL
    token: str = field(default="", repr=False)


def make() -> RunK3s:
    """Make the cluster, on the first controller."""
    return RunK3s()


def join(cluster: ClusterSettings, token: str) -> RunK3s:
    """Add a controller to the cluster."""
    return RunK3s(server=f"https://{cluster.endpoint}", token=token)
