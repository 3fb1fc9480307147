"""Why a Windows node does not join the cluster, or its pods have no network."""

from __future__ import annotations

from winlab.design.cause.model import Cause, Clue, Effect

PROXY_AGAIN = "'winlab exec NODE -- powershell.exe -Command Restart-Service kube-proxy'"

CAUSES = (
    Cause(
        "containerd-silent",
        Effect.ENDS,
        (Clue("containerd does not answer after"),),
        "containerd was started, but does not answer.",
        "Its configuration has a setting that this release does not know, or antivirus has its files locked.",
        "The message has the end of its log; 'winlab logs NODE' has more. Then run the same command again.",
        "kubernetes-sigs/sig-windows-tools; containerd's release notes",
    ),
    Cause(
        "containerd-late",
        Effect.ENDS,
        (
            Clue("[error cri]", r"DeadlineExceeded"),
            Clue("[error containerruntimeversion]", r"DeadlineExceeded"),
        ),
        "containerd answered kubeadm too late.",
        "kubeadm's check gives it two seconds for each answer, and the machine is busy.",
        "Run the same command again; give the node more processors (workers.cpus) if the problem persists.",
        "kubeadm's preflight checks",
    ),
    Cause(
        "token",
        Effect.ENDS,
        (Clue("could not find a jws signature in the cluster-info configmap"),),
        "The token for the node's join is no longer valid.",
        "Tokens live for two hours.",
        "Run the same command again: it makes a new one.",
        "kubeadm: cluster-info discovery",
    ),
    Cause(
        "network-remade",
        Effect.ENDS,
        (
            Clue("there is no hns endpoint '"),
            Clue("has not made the hns endpoint '"),
            Clue("is not made after three minutes"),
            Clue("does not answer winrm at", r'"step": ?"(proxy|cni|member) '),
        ),
        "The node's network was being recreated, and that took longer than winlab waited, or cut the connection.",
        "A CNI plug-in's agent turns the adapter into a virtual switch; its images have a gigabyte, and the adapter "
        "is gone for some seconds.",
        "Run the same command again: it resumes there. 'winlab kubectl -- get pods -A -o wide' shows the agent.",
        "projectcalico/calico: node/windows-packaging, #8219",
    ),
    Cause(
        "stale-network",
        Effect.HURTS,
        (
            Clue("0x803b0010"),
            Clue("hcncreateloadbalancer failed", r"0x803b0013|0x803b0007|\(0xb7\)|already exists"),
        ),
        "Windows' network service (HNS) has leftovers of an earlier network, and services don't work.",
        "After a restart a CNI plug-in makes a new network, while kube-proxy's rules and ports belong to the old one.",
        f"Run 'winlab repair', or do it manually: {PROXY_AGAIN}; if that does not help, 'winlab restart NODE'.",
        "kubernetes/kubernetes#139519; kubernetes-sigs/sig-windows-tools: start.ps1; microsoft/hcsshim#1043",
    ),
    Cause(
        "other-minor",
        Effect.HURTS,
        (
            Clue("unknown flag: --"),
            Clue("unrecognized feature gate"),
        ),
        "A Kubernetes program does not know one of its options, and ends.",
        "It is of another minor release than the cluster: options and feature gates come and go.",
        "'winlab push kubelet NODE --restore' (or kube-proxy) restores the lab's own.",
        "Kubernetes 1.35: --pod-infra-container-image; kubernetes/kubernetes#142125; sig-windows-tools#225",
    ),
    Cause(
        "image-of-another-windows",
        Effect.HURTS,
        (
            Clue("container operating system does not match the host operating system"),
            Clue("operating system of the container does not match"),
            Clue("0xc0370101"),
            Clue("is it for another windows?"),
            Clue("no match for platform in manifest"),
        ),
        "A container image is for another release of Windows.",
        "Windows runs images of its release; from 2022 on, also of an earlier one.",
        "Choose the image's tag for the node (ltsc2019, ltsc2022, ltsc2025), or a matching node with a nodeSelector.",
        "Microsoft: version compatibility of containers; kubernetes/kubernetes#99157",
    ),
    Cause(
        "images-unreachable",
        Effect.HURTS,
        (
            Clue("failed to get sandbox image"),
            Clue("failed to pull image", r"no such host|dial tcp|i/o timeout|proxyconnect"),
        ),
        "The node can't fetch a container image.",
        "It does not reach the registry, or the name of the registry has no address there.",
        "Give the lab access to the internet (the host's NAT, DNS), or bring the image: 'winlab load FILE'.",
        "containerd: pull errors",
    ),
    Cause(
        "adapter-not-found",
        Effect.HURTS,
        (Clue("0x803b0006"),),
        "Windows' network service (HNS) does not know the adapter for a new network.",
        "It has another name, or a virtual switch has already taken it.",
        "Run the same command again; if the problem persists, run 'winlab restart NODE'.",
        "Microsoft: HCN_E_ADAPTER_NOT_FOUND",
    ),
)
