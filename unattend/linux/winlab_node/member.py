"""Makes this node a member of an external cluster, with credentials that winlab requested."""

from __future__ import annotations

import re
import time

from winlab_node.node import Node, NodeError, say
from winlab_node.state import CLIENT, KUBELET_CONF, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

CLIENT_CA, PROXY = "etc/kubernetes/pki/ca.crt", "var/lib/kube-proxy/kubeconfig"
SECONDS = 900.0  # for the kubelet to start: an emulated node takes minutes
REPORT = 30.0  # seconds between two lines of progress


def member(node: Node, settings: Settings) -> Settings:
    """Start the kubelet with these credentials, and wait until it has taken them.

    It keeps their certificate as its own, and asks for another one at once.
    """
    kubeconfig, authority = settings["kubeconfig"], settings["client_ca"]
    if "BEGIN CERTIFICATE" not in authority:
        raise NodeError("settings.client_ca is no certificate.")
    server = _server(kubeconfig)
    if server is None:
        raise NodeError("settings.kubeconfig names no server.")
    done = joined(node)
    if done and server != (there := _server(node.path(KUBELET_CONF).read_text())):
        raise NodeError(f"This node is part of the cluster at '{there}' already, not of '{server}'.")
    if not done:
        node.call("systemctl", "stop", "kubelet", fine=(0, 5))
        for path in node.path(CLIENT).parent.glob("kubelet-*.pem"):  # what an unfinished join left
            path.unlink()
    changed = node.write(CLIENT_CA, authority)
    if settings.get("proxy"):
        changed = node.write(PROXY, settings["proxy"], 0o600) or changed
    if not done:
        node.write(KUBELET_CONF, kubeconfig, 0o600)  # last, because with it this is a node
        changed = True
    if changed:
        node.call("systemctl", "enable", "kubelet")
        node.call("systemctl", "restart", "kubelet")
    _await_certificate(node)
    return {"joined": True, "changed": changed}


def _server(kubeconfig: str) -> str | None:
    found = re.search(r"^\s*server:\s*[\"']?https://([^\s\"']+)", kubeconfig, re.MULTILINE)
    return found[1] if found else None


def _await_certificate(node: Node) -> None:
    begun = told = time.monotonic()
    while not node.path(CLIENT).exists():
        now = time.monotonic()
        if now - begun > SECONDS:
            log = node.call("journalctl", "--unit=kubelet", "--lines=12", "--output=cat", fine=(0, 1))
            raise NodeError(f"The kubelet has not taken its certificate after {SECONDS / 60:.0f} min:\n{log}")
        if now - told > REPORT:
            told = now
            say("waiting for the kubelet to take its certificate")
        time.sleep(1)
