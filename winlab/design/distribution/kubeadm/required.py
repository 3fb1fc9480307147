"""The programs and images that nodes of a kubeadm cluster need. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from winlab.design.system import LINUX, WINDOWS, System
from winlab.design.system.windows import SHIM

Rows = tuple[tuple[str, str], ...]

PROGRAMS: Mapping[System, Rows] = {
    LINUX: (
        ("kubeadm", "kubernetes"),
        ("kubelet", "kubernetes"),
        ("kubectl", "kubernetes"),
        ("containerd", "containerd"),
        ("containerd-shim-runc-v2", "containerd"),
        ("ctr", "containerd"),
        ("runc", "runc"),
        ("crictl", "crictl"),
    ),
    WINDOWS: (
        ("kubeadm", "kubernetes"),
        ("kubelet", "kubernetes"),
        ("kubectl", "kubernetes"),
        ("kube-proxy", "kubernetes"),
        ("kube-log-runner", "kubernetes"),
        ("containerd", "containerd"),
        ("ctr", "containerd"),
        (SHIM, "containerd"),
        ("crictl", "crictl"),
    ),
}
IMAGES: Mapping[System, Rows] = {
    LINUX: (
        ("pause", "pause"),
        ("e2e-test-images/agnhost", "agnhost"),
        ("kube-apiserver", "kubernetes"),
        ("kube-controller-manager", "kubernetes"),
        ("kube-scheduler", "kubernetes"),
        ("kube-proxy", "kubernetes"),
        ("etcd", "etcd"),
        ("coredns/coredns", "coredns"),
    ),
    WINDOWS: (("pause", "pause"), ("e2e-test-images/agnhost", "agnhost")),
}
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
ONE_FOR_ALL = (*CONTROL_PLANE, "coredns/coredns")
