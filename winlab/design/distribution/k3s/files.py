"""The files of a controller that runs k3s, before it starts. Pure.

Flags: github.com/k3s-io/k3s pkg/cli/cmds/server.go and agent.go. The unit is like that of its install.sh.
"""

from __future__ import annotations

from collections.abc import Iterator

from winlab.design.distribution import containerd, leases
from winlab.design.distribution.kubelet import RESOLV_CONF
from winlab.design.distribution.model import ClusterSettings, Member

UNIT_FILE = "/etc/systemd/system/kubelet.service"
ENVIRONMENT = "/etc/rancher/k3s/winlab.env"  # the script that starts k3s writes it: it may hold the servers' token
OWN = ("/etc/rancher", "/var/lib/rancher", "/etc/systemd/system/k3s.service")
# What winlab has in its own way, or what a lab does not need: CoreDNS has the same version and configuration whatever
# makes the cluster (dns.py)
DISABLED = ("coredns", "local-storage", "metrics-server", "servicelb", "traefik")
TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"  # as controllers of other labs have; k3s gives none

# Without its environment it would make a cluster of its own, if a node is restarted before it joins.
# k3s has the kubelet in it, so its unit has the kubelet's name: what starts, stops and watches that works as elsewhere
UNIT = """\
[Unit]
Description=k3s: a control plane and its kubelet
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target containerd.service
ConditionPathExists={environment}

[Service]
Type=notify
EnvironmentFile={environment}
{slow}ExecStartPre=-/sbin/modprobe br_netfilter
ExecStart={command}
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
Alias=k3s.service
"""
# In an emulator the API server's garbage collection takes a fifth of the CPU time until it is ready
SLOW = "Environment=GOGC=400\n"


def controller(cluster: ClusterSettings, node: Member) -> dict[str, str]:
    """The files by path; none is secret."""
    return {
        "/etc/systemd/system/containerd.service": containerd.unit(),
        UNIT_FILE: unit(cluster, node),
        "/etc/containerd/config.toml": containerd.config(cluster.versions, node.system),
        "/etc/crictl.yaml": containerd.crictl(node.system),
    }


def unit(cluster: ClusterSettings, node: Member) -> str:
    """/etc/systemd/system/kubelet.service."""
    command = " \\\n  ".join(("/usr/local/bin/k3s server", *_flags(cluster, node)))
    return UNIT.format(environment=ENVIRONMENT, slow=SLOW if cluster.emulated else "", command=command)


def _flags(cluster: ClusterSettings, node: Member) -> Iterator[str]:
    yield f"--node-name={node.name}"
    yield f"--node-ip={node.address}"
    yield f"--advertise-address={node.address}"
    yield f"--https-listen-port={cluster.endpoint.rpartition(':')[2]}"
    yield from (f"--tls-san={name}" for name in cluster.names)
    yield f"--cluster-cidr={cluster.pod_cidr}"
    yield f"--service-cidr={cluster.service_cidr}"
    yield f"--cluster-dns={cluster.dns}"
    yield f"--cluster-domain={cluster.domain}"
    # containerd, the pods' network and the names of images are then the same on all nodes, and the CNI profile's
    yield f"--container-runtime-endpoint={node.system.cri_socket}"
    yield "--flannel-backend=none"
    yield "--disable-network-policy"
    yield from (f"--disable={one}" for one in DISABLED)
    yield "--disable-helm-controller"
    yield "--disable-cloud-controller"  # its nodes are in no cloud, and it does not know those without its agent
    yield "--egress-selector-mode=disabled"  # such nodes have no tunnel for logs and exec
    yield f"--resolv-conf={RESOLV_CONF}"
    yield "--kubelet-arg=cgroup-driver=systemd"  # it knows that only of its own containerd
    yield from (f"--node-label={key}={value}" for key, value in node.labels.items())
    taints = (TAINT,) if node.taints is None else tuple(map(str, node.taints))
    yield from (f"--node-taint={taint}" for taint in taints)
    if cluster.emulated:
        for program, flags in leases.slow(cluster.versions).items():
            yield from (f"--{program}-arg={name}={value}" for name, value in flags.items())
