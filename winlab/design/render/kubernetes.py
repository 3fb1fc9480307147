"""All files for a cluster's nodes and its API server, for ``winlab plan --render``. Pure.

Tokens and certificates come later. Placeholders of the right form stand for them.
Pod networks are those that a controller manager assigns when the nodes join in the plan's order.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator

import yaml

from winlab.design.cni.model import NodeNetwork
from winlab.design.plan.model import Plan
from winlab.design.render import nodes, systems


def files(plan: Plan) -> dict[str, bytes]:
    """All files by path: ``cluster/objects.yaml``, ``<node>/kubernetes/...``, ``<node>/scripts/<n>-<script>.json``.

    The scripts' settings are complete; files among them are also written next to them, under their own names.
    """
    if plan.kubernetes is None:
        return {}
    objects = yaml.safe_dump_all(nodes.objects(plan), sort_keys=False)
    texts = {"cluster/objects.yaml": objects} if objects else {}
    shares = list(_shares(plan))
    for node, share in zip(plan.members, shares, strict=True):
        for number, call in enumerate(systems.of(plan, node).calls(share, shares), 1):
            settings = call.settings(node.os)
            path = f"{node.name}/scripts/{number}-{call.script}.json"
            texts[path] = json.dumps(settings, indent=2) + "\n"
            texts.update({f"{node.name}/kubernetes/{name}": text for name, text in call.texts().items()})
    return {path: text.encode() for path, text in texts.items()}


def _shares(plan: Plan) -> Iterator[NodeNetwork]:
    networks = ipaddress.IPv4Network(plan.cluster.pod_cidr).subnets(new_prefix=24)
    for node, network in zip(plan.members, networks, strict=False):
        yield NodeNetwork(node.name, node.os, node.address, str(network))
