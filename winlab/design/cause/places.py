"""Where the logs of Windows nodes are."""

from __future__ import annotations

LOGS = {  # of Windows nodes, as unattend/windows/worker/logs.ps1 has them
    "kubelet": "C:/var/log/kubelet/kubelet.log",
    "containerd": "C:/var/log/containerd/containerd.log",
    "kubeadm": "C:/var/log/kubeadm/join.log",
    "kube-proxy": "C:/var/log/kube-proxy/kube-proxy.log",
    "network": "C:/winlab/network.log",
}
