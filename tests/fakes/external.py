"""An external cluster, and labs whose workers join it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import plans
from certificates import CA

from winlab.design import spec
from winlab.design.distribution import kubelet
from winlab.design.plan import addresses
from winlab.design.plan import make as plan
from winlab.design.plan.existing import ForeignCluster
from winlab.design.plan.model import Plan
from winlab.design.render import nodes

CLUSTER = ForeignCluster(
    server="https://192.0.2.10:6443", advertised="https://192.0.2.10:6443", ca=CA, version="v1.36.1",
    pod_cidr="10.200.0.0/16", service_cidr="10.96.0.0/12", dns="10.96.0.10", domain="their.domain", cni=None,
    cni_note="it has no DaemonSet of a CNI", nodes=("cp",),
)  # fmt: skip
K3S = replace(CLUSTER, cni="calico-vxlan", cni_note="Calico with VXLAN", kind="k3s", proxies=())
REHEARSAL = "workers.os=windows-rehearsal"


def make(*changes: str, cluster: ForeignCluster = CLUSTER, source: str = "1-1-1") -> Plan:
    """The plan of a lab whose workers join the cluster."""
    wanted = spec.load(source, changes)
    return plan.make(wanted, "lab", plans.TCG, plans.stock(wanted), cluster)


def kubelet_command(made: Plan, name: str) -> str:
    """The command line of a Windows node's kubelet."""
    membership = made.cluster.membership
    return kubelet.windows_command(
        made.cluster.versions, nodes.member(made, made.node(name)), bootstraps=membership.bootstraps
    )


def node(name: str = "node-1", **changes: Any) -> dict[str, Any]:
    """The Kubernetes node of a machine of the lab 'lab', as kubectl prints it."""
    row: dict[str, Any] = {
        "metadata": {"name": name, "labels": {nodes.MACHINE: addresses.make_uuid("lab", name)}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.77.0.101"}]},
    }
    return row | changes
