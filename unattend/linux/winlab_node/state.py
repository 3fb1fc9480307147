"""How far this node is: its services, and whether it is part of a cluster."""

from __future__ import annotations

from winlab_node.node import Node

KUBELET_CONF, CLIENT = "etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet-client-current.pem"


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
    """Whether the node is part of a cluster: kubeadm succeeded, and the kubelet has its certificate."""
    there = node.path(KUBELET_CONF).exists() and node.path(CLIENT).exists()
    return there and not started(node)


def started(node: Node) -> bool:
    """Whether kubeadm began to make this a node and did not succeed."""
    return bool(node.note("kubeadm", {}).get("state") == "begun")
