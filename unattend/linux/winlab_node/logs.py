"""The logs to read when a node does not become Ready."""

from __future__ import annotations

from winlab_node import kubeadm, state
from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings


def logs(node: Node, settings: Settings) -> Settings:
    """The last lines of the logs that matter when a node does not become Ready. Changes nothing."""
    count = int(settings.get("lines", 60))
    if not 1 <= count <= 10000:
        raise NodeError(f"settings.lines is {count}, not between 1 and 10000.")
    found = {
        unit: node.call("journalctl", "--no-pager", "-o", "cat", "-n", str(count), "-u", unit, fine=(0, 1))
        for unit in ("kubelet", "containerd")
    }
    log = node.path(kubeadm.LOG)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    names = ("containerd", "kubelet")
    states = zip(names, state.service(node, *names), strict=True)
    services = "\n".join(f"{name}: {standing}" for name, standing in states)
    return {"logs": {**found, "kubeadm": "\n".join(lines[-count:]), "services": services}}
