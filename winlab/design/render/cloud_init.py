"""A Linux node's seed for cloud-init (NoCloud).

Source: cloud-init's documentation of NoCloud and of network configuration version 2. Interfaces are matched by MAC
address; a match by name is dropped silently by one of cloud-init's renderers.
"""

from __future__ import annotations

import json

from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render import proxy
from winlab.design.render.templates import for_yaml

SEED_LABEL = "cidata"


def seed_files(plan: Plan, node: LinuxNode, credentials: Credentials) -> dict[str, bytes]:
    """The files of the node's seed volume (labelled ``cidata``), by name."""
    user_data = (
        for_yaml("linux")
        .get_template("user-data.yaml.j2")
        .render(
            node=node,
            network=plan.network,
            credentials=credentials,
            identity=credentials.nodes[node.name],
            emulated=plan.hypervisors[node.hypervisor].accelerator != "kvm",
            # a node of the cluster gets them, and later changes, from the step that prepares it
            files={} if node.is_member else proxy.login_files(plan, node),
        )
    )
    meta_data = {"instance-id": plan.instance(node), "local-hostname": node.name}
    network = {
        "version": 2,
        "ethernets": {
            "eth0": {
                "match": {"macaddress": node.mac},
                "set-name": "eth0",
                "dhcp4": True,
                # so that short names of other nodes resolve; cloud-init's schema wants a string
                "dhcp4-overrides": {"use-domains": "true"},
                "mtu": plan.network.mtu,
            }
        },
    }
    return {
        "meta-data": _json(meta_data),
        "network-config": _json(network),
        "user-data": user_data.encode(),
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()  # JSON is YAML, too
