"""All files for a cluster's nodes and its API server, for ``winlab plan --render``. Pure.

Tokens and certificates come later. Placeholders of the right form stand for them, so that kubeadm accepts the files.
Pod networks are those that a controller manager assigns when the nodes join in the plan's order.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import yaml

from winlab.design import contract
from winlab.design.cni.model import NodeNetwork
from winlab.design.plan.model import Plan
from winlab.design.render import kubeadm, nodes, systems

# kubeadm checks the form of a token, of a CA's digest and of a certificate key
TOKEN = "tokent.tokentokentokent"  # noqa: S105 - a placeholder
MARKS = nodes.Marks(
    kubeadm.JoinCredentials(TOKEN, (f"sha256:{'0' * 64}",), "0" * 64),
    "<kubeconfig with the token of kube-proxy's service account>",
)


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
        for number, call in enumerate(systems.of(plan, node).calls(share, shares, MARKS), 1):
            settings = call.settings(node.os)
            path = f"{node.name}/scripts/{number}-{call.script}.json"
            texts[path] = json.dumps(settings, indent=2) + "\n"
            texts.update({f"{node.name}/kubernetes/{name}": text for name, text in _texts(call)})
    return {path: text.encode() for path, text in texts.items()}


def _texts(call: contract.Call[Any]) -> Iterator[tuple[str, str]]:
    """The files among a script's settings, by name."""
    if isinstance(call, contract.Prepare):
        for path, file in call.files.items():
            yield path.lstrip("/"), file.content
    elif isinstance(call, contract.Cni):
        for name, text in call.files.items():
            yield f"cni/{name}", text
    elif isinstance(call, contract.RunKubeadm | contract.Join):
        yield "kubeadm.yaml", call.configuration
    elif isinstance(call, contract.Containerd):
        yield "containerd.toml", call.config
    elif isinstance(call, contract.Proxy):
        yield "kube-proxy.yaml", call.config


def _shares(plan: Plan) -> Iterator[NodeNetwork]:
    networks = ipaddress.IPv4Network(plan.cluster.pod_cidr).subnets(new_prefix=24)
    for node, network in zip(plan.members, networks, strict=False):
        yield NodeNetwork(node.name, node.os, node.address, str(network))
