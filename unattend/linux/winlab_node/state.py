"""How far this node is: its services, and whether it is part of a cluster."""

from __future__ import annotations

from winlab_node.node import Node

KUBELET_CONF, CLIENT = "etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet-client-current.pem"
CREDENTIALS = (  # a kubelet's kubeconfig and certificate, where each kind of node has them
    (KUBELET_CONF, CLIENT),
    ("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "var/lib/rancher/k3s/agent/client-kubelet.crt"),
)
STARTED = ("kubeadm", "k3s")  # the records of what makes this a node


def service(node: Node, *names: str) -> list[str]:
    """The states of services: running, stopped or absent."""
    folders = [node.path(f"{at}/systemd/system") for at in ("etc", "lib")]
    units = [any((folder / f"{name}.service").exists() for folder in folders) for name in names]
    answers = node.call("systemctl", "is-active", *names, fine=(0, 1, 2, 3, 4)).split()
    states = ["running" if answer in ("active", "reloading") else "stopped" for answer in answers]
    return [state if there else "absent" for state, there in zip(states, units, strict=True)]


def boot_id(node: Node) -> str:
    """An id that changes with each start of the node."""
    return node.path("proc/sys/kernel/random/boot_id").read_text().strip()


def joined(node: Node) -> bool:
    """Whether the node is part of a cluster: what makes it one succeeded, and the kubelet has its certificate."""
    return is_configured(node) and not started(node)


def is_configured(node: Node) -> bool:
    """Whether the kubelet has its kubeconfig and its certificate."""
    return any(all(node.path(name).exists() for name in pair) for pair in CREDENTIALS)


def started(node: Node) -> bool:
    """Whether something began to make this a node and did not succeed."""
    return any(node.note(name, {}).get("state") == "begun" for name in STARTED)
