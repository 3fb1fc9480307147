"""Specs that represent all kinds of labs: golden files and other tests use them."""

from __future__ import annotations

import plans

from winlab.design.plan.facts import HostFacts

CASES: dict[str, tuple[HostFacts, str, list[str]]] = {
    "rehearsal-tcg": (plans.TCG, "1-1-1", ["workers.os=windows-rehearsal"]),
    "windows-2022-kvm": (plans.KVM, "1-1-1", ["workers.bus=sata"]),
    "windows-2025-virtio-kvm": (
        plans.KVM,
        "1-1-1",
        ["workers.os=windows-2025", "workers.drivers=/srv/virtio-win.iso", "workers.edition=standard-desktop"],
    ),
    "windows-2022-bios-kvm": (
        plans.KVM,
        "1-1-1",
        ["workers.drivers=/srv/virtio-win.iso", "workers.firmware=bios", "workers.bus=virtio-blk"],
    ),
    "pools-kvm": (plans.KVM, "mixed", ["workers.win25.count=2", "workers.bus=sata"]),
    "linux-workers-kvm": (plans.KVM, "3-2-1", ["workers.os=debian-13", "network.cidr=10.99.0.0/16"]),
    "add-on-tcg": (plans.TCG, "1-0-1", ["addons.metrics-server={}"]),
}
# Clusters that kubeadm does not make
OTHERS: dict[str, tuple[HostFacts, str, list[str]]] = {
    "k3s-tcg": (
        plans.TCG,
        "3-1-1",
        ["workers.os=windows-rehearsal", "kubernetes.distribution=k3s", "network.cni=host-gw", "linux_workers.count=1"],
    ),
}
