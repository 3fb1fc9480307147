"""What the Calico of an external cluster lacks for Windows nodes. Pure.

Sources: tigera/operator 03e702b pkg/controller/installation/windows_controller.go (it makes no Windows half without
``windowsDataplane``, the API server's address and strictAffinity) and pkg/render/windows.go; k0sproject/k0s a37629a
static/manifests/calico/DaemonSet/calico-node-windows.yaml; Calico's documentation of limitations on Windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from winlab.design.cni.model import WINDOWS_PORT, WINDOWS_VNI, Answer, Lack, Unreadable

DAEMON_SET = "calico-node-windows"  # its DaemonSet, whatever made it
OPERATED = "calico-system"  # the namespace of what the operator makes
STRICT = (
    'kubectl patch ipamconfigs.crd.projectcalico.org default --type=merge -p \'{"spec": {"strictAffinity": true}}\''
)
CONFIG = json.dumps(
    {
        "apiVersion": "crd.projectcalico.org/v1",
        "kind": "IPAMConfig",
        "metadata": {"name": "default"},
        "spec": {"strictAffinity": True, "autoAllocateBlocks": True},
    }
)
INSTALLATION = json.dumps(
    {
        "spec": {
            "serviceCIDRs": ["SERVICES"],
            "calicoNetwork": {"windowsDataplane": "HNS"},
            "windowsNodes": {
                "cniBinDir": "/opt/cni/bin",
                "cniConfigDir": "/etc/cni/net.d",
                "cniLogDir": "/var/log/calico/cni",
            },
        }
    }
)
BY_OPERATOR = (
    "kubectl --namespace tigera-operator create configmap kubernetes-services-endpoint "
    "--from-literal=KUBERNETES_SERVICE_HOST=ADDRESS --from-literal=KUBERNETES_SERVICE_PORT=PORT, with an address of "
    f"the API server that nodes reach; then kubectl patch installation default --type=merge -p '{INSTALLATION}', with "
    "the cluster's service network."
)
BY_MANIFEST = (
    f"Apply a DaemonSet {DAEMON_SET} with the images calico/node-windows and calico/cni-windows of the version that "
    f"calico-node has. k0s's static/manifests/calico/DaemonSet/{DAEMON_SET}.yaml is one: fill in the API server's "
    f"address, the service network, cluster DNS, VNI {WINDOWS_VNI} and port {WINDOWS_PORT}."
)


def lacks(daemon_sets: Mapping[str, str], ipam: Answer) -> tuple[Lack, ...]:
    """What it lacks.

    :param ipam: its IPAMConfig objects.
    """
    found = []
    rows = ipam if isinstance(ipam, list) else []
    default = next((row for row in rows if row.get("metadata", {}).get("name") == "default"), None)
    if isinstance(ipam, Unreadable) or not (default and (default.get("spec") or {}).get("strictAffinity") is True):
        why = f" (it can't be read: {ipam.why})" if isinstance(ipam, Unreadable) else ""
        cure = STRICT if default else f"echo '{CONFIG}' | kubectl apply --server-side --filename=-"
        found.append(Lack(f"Its Calico lends addresses of one node to others: strictAffinity is not set{why}.", cure))
    if DAEMON_SET not in daemon_sets:
        cure = BY_OPERATOR if daemon_sets["calico-node"] == OPERATED else BY_MANIFEST
        found.append(Lack(f"Its Calico has no DaemonSet {DAEMON_SET}.", cure))
    return tuple(found)


def other_vxlan(felix: Answer) -> str:
    """What of Felix's VNI and port Windows does not have; empty if it has them, or they can't be read."""
    rows = felix if isinstance(felix, list) else []
    spec: dict[str, Any] = next(
        (row.get("spec") or {} for row in rows if row.get("metadata", {}).get("name") == "default"), {}
    )
    vni, port = spec.get("vxlanVNI", WINDOWS_VNI), spec.get("vxlanPort", WINDOWS_PORT)
    if (vni, port) == (WINDOWS_VNI, WINDOWS_PORT):
        return ""
    return f"VNI {vni}, port {port}; winlab's workers have VNI {WINDOWS_VNI}, port {WINDOWS_PORT}"
