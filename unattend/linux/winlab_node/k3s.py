"""k3s, started on this controller."""

from __future__ import annotations

import re
import time

from winlab_node import state
from winlab_node.node import Node, NodeError, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

ENVIRONMENT = "etc/rancher/k3s/winlab.env"
NOTE = "k3s"
SECONDS = 1800.0  # for an API server, etcd and a kubelet: an emulated node takes ten minutes
REPORT = 30.0  # seconds between two lines of progress
SECRET = re.compile(r"K10[0-9a-f]{64}::\S+")


def run_k3s(node: Node, settings: Settings) -> Settings:
    """Start k3s, and wait until it is ready. An interrupted start is resumed."""
    server, token = settings.get("server", ""), settings.get("token", "")
    if bool(server) != bool(token):
        raise NodeError("settings.server and settings.token belong together.")
    if any(re.search(r"[\s'\"\\]", word) for word in (server, token)):
        raise NodeError("settings.server and settings.token must be single words.")
    if state.joined(node):
        noted = node.note(NOTE, {}).get("server", "")
        if noted != server:
            raise NodeError(f"This node is part of a cluster already, made by '{noted or 'itself'}'.")
        return {"joined": True, "changed": False}
    node.keep(NOTE, {"state": "begun", "server": server})
    rows = (f"K3S_URL={server}", f"K3S_TOKEN={token}") if server else ("K3S_CLUSTER_INIT=true",)
    node.write(ENVIRONMENT, "\n".join(rows) + "\n", 0o600)
    node.call("systemctl", "enable", "kubelet")
    node.call("systemctl", "restart", "--no-block", "kubelet")
    _await_ready(node)
    node.keep(NOTE, {"state": "done", "server": server})
    return {"joined": True, "changed": True}


def _await_ready(node: Node) -> None:
    begun = told = time.monotonic()
    # the unit is active once k3s says that its API server is ready
    while not (state.service(node, "kubelet") == ["running"] and state.is_configured(node)):
        now = time.monotonic()
        if now - begun > SECONDS:
            raise NodeError(f"k3s is not ready after {SECONDS / 60:.0f} min:\n{_log(node, 12)}")
        if now - told > REPORT:
            told = now
            say(_log(node, 1) or "waiting for k3s")
        time.sleep(1)


def _log(node: Node, lines: int) -> str:
    words = ("--unit=kubelet", f"--lines={lines}", "--output=cat", "--no-pager")
    return SECRET.sub("<secret>", node.call("journalctl", *words, fine=(0, 1)).strip())
