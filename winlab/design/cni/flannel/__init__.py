r"""``flannel-vxlan``: flanneld on every node, with the reference plug-ins under it on both systems. Pure.

Facts: flannel v0.28.10's Documentation/kube-flannel.yml and backends.md, pkg/backend/vxlan/vxlan_windows.go,
pkg/subnet/kube/kube.go. Flannel's own CNI plug-in only turns the node's pod CIDR into a configuration of the reference
plug-ins. winlab knows that CIDR and writes the configuration itself, so that neither system needs it.

No Windows image of flannel is published any more (kubernetes-sigs/sig-windows-tools#385). flanneld.exe is, but is not a
Windows service: a HostProcess pod of a tiny image runs it from the node's folder of CNI plug-ins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.design.cni import plugins
from winlab.design.cni.model import (
    WINDOWS_PORT,
    WINDOWS_VNI,
    Answer,
    ConfigMapEntry,
    Endpoint,
    NodeNetwork,
    Object,
    PodNetwork,
    ProxyNetwork,
    Question,
    Recognized,
    Support,
    Unreadable,
    Versions,
    has_hns,
)
from winlab.design.cni.profile import Profile
from winlab.design.system import LINUX, WINDOWS, System

NAMESPACE = "kube-flannel"
LABELS = {"k8s-app": "flannel"}
CONFIG = "kube-flannel-cfg"
HOST_PROCESS_IMAGE = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0"
FLANNELD_EXE = r"C:\opt\cni\bin\flanneld.exe"


class FlannelVxlan(Profile):
    """VXLAN between nodes, by flanneld; pods behind a bridge (Linux) or an HNS overlay network (Windows)."""

    name = "flannel-vxlan"
    pods = "bridge / win-overlay"
    carrier = "flanneld, in VXLAN"
    encapsulation = "vxlan"
    vni = WINDOWS_VNI
    port = WINDOWS_PORT
    no_rehearsal = (
        "flanneld could not be built unmodified from Go modules (docs/cni.md), "
        "and its Windows half needs a real HNS and HostProcess containers."
    )

    # the last one comes from other flannel manifests, which a joined cluster may use
    daemon_sets = ("kube-flannel-ds", "kube-flannel-ds-windows", "kube-flannel-ds-windows-amd64")
    pins = Path(__file__).with_name("pins.yaml")

    def programs(self, versions: Versions) -> list[Program]:
        """The reference plug-ins with win-overlay, and flanneld.exe, which has no image."""
        return [*plugins.programs(versions, "win-overlay"), Program("flanneld", versions["flannel"], "windows")]

    def images(self, versions: Versions) -> list[ContainerImage]:
        """flanneld for Linux, and Microsoft's base image for HostProcess containers (22 kB, for any Windows build)."""
        return [ContainerImage(_image(versions), "linux"), ContainerImage(HOST_PROCESS_IMAGE, "windows")]

    def manifests(
        self, network: PodNetwork, nodes: Sequence[NodeNetwork], endpoint: Endpoint, versions: Versions
    ) -> list[Object]:
        """Namespace, rights, one configuration for both systems, and a DaemonSet for each system in the lab."""
        objects = [*_account(), _configuration(network), _linux_daemon_set(endpoint, _image(versions))]
        if has_hns(nodes):
            objects.append(_windows_daemon_set(endpoint))
        return objects

    def linux_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:
        """The conflist with the node's pod CIDR and room for VXLAN's headers."""
        return {plugins.FILE: plugins.linux(node, self.pod_mtu(network, "linux"))}

    def windows_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:
        """The conflist with the node's pod CIDR, in the HNS network that flanneld makes."""
        text = plugins.windows(network, node, "win-overlay", self.exceptions(network), hns_name(network))
        return {plugins.FILE: text}

    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:
        """flanneld's overlay, and the second address of the node's pod CIDR, which host-local keeps free for it."""
        return ProxyNetwork(hns_name(network), source_vip=str(node.pods[2]))

    def exceptions(self, network: PodNetwork) -> tuple[str, ...]:
        """Pods and services; nodes outside the overlay don't know the way back to a Windows pod."""
        return (network.pod_cidr, network.service_cidr)

    def questions(self, daemon_sets: Mapping[str, str]) -> Sequence[Question]:
        """Its configuration, in the namespace of its DaemonSet."""
        return [_entry(namespace) for name, namespace in daemon_sets.items() if name.startswith("kube-flannel")][:1]

    def recognize(self, daemon_sets: Mapping[str, str], answers: Mapping[Question, Answer]) -> Recognized | None:
        """Recognized by its DaemonSet and its configured backend, which Windows must support, too."""
        asked = self.questions(daemon_sets)
        if not asked:
            return None
        settings = answers[asked[0]]
        if isinstance(settings, Unreadable):
            return Recognized(None, f"flannel, whose configuration can't be read ({settings.why})")
        assert isinstance(settings, dict), "the answer to ConfigMapEntry"
        backend = settings.get("Backend")
        if not isinstance(backend, dict):
            backend = {}
        kind = str(backend.get("Type", "none"))
        if kind == "host-gw":
            return Recognized(None, "flannel with host-gw, which needs all nodes in one network")
        needed = f"vxlan, VNI {WINDOWS_VNI}, port {WINDOWS_PORT}"
        if (kind, backend.get("VNI"), backend.get("Port")) != ("vxlan", WINDOWS_VNI, WINDOWS_PORT):
            seen = f"flannel with {kind}, VNI {backend.get('VNI', 'default')}, port {backend.get('Port', 'default')}"
            return Recognized(None, f"{seen}; Windows needs {needed}")
        return Recognized(self.name, f"flannel with {needed}")

    def windows_support(self, release: str) -> Support:
        """From April 2025 on, only RKE2 maintains flannel on Windows.

        Mounts of a HostProcess container are in their own places only where Windows has bindfltapi.dll (hcsshim,
        internal/jobcontainers/jobcontainer.go); on 2019 they are below the container's own folder.
        """
        if release == "2019":
            return Support(
                "refused",
                "flanneld runs in a HostProcess container, and on Windows Server 2019 it does not find what is mounted "
                "there: its configuration and its token.",
            )
        if release == "2025":
            return Support("refused", "Nobody is known to run flannel on Windows Server 2025.")
        return Support(
            "experimental",
            f"Flannel still publishes flanneld.exe, but no manifests for Windows; winlab's own are untested on "
            f"Windows Server {release}.",
        )


def hns_name(network: PodNetwork) -> str:
    """The HNS network that flanneld makes on Windows (vxlan_windows.go)."""
    return f"flannel.{network.vni}"


def _entry(namespace: str) -> ConfigMapEntry:
    return ConfigMapEntry(namespace, CONFIG, "net-conf.json")


def _image(versions: Versions) -> str:
    return f"ghcr.io/flannel-io/flannel:{versions['flannel']}"


def _account() -> list[Object]:
    rights = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": NAMESPACE,
                "labels": {**LABELS, "pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "flannel", "namespace": NAMESPACE, "labels": LABELS},
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "flannel", "labels": LABELS},
            "rules": rights,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "flannel", "labels": LABELS},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "flannel"},
            "subjects": [{"kind": "ServiceAccount", "name": "flannel", "namespace": NAMESPACE}],
        },
    ]


def _configuration(network: PodNetwork) -> Object:
    # flannel's own VNI and port on Linux are 1 and 8472: Windows can't do either
    backend = {"Type": "vxlan", "VNI": network.vni, "Port": network.port}
    text = json.dumps({"Network": network.pod_cidr, "EnableNFTables": False, "Backend": backend}, indent=2)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": NAMESPACE, "labels": LABELS},
        "data": {"net-conf.json": text + "\n"},
    }


def _linux_daemon_set(endpoint: Endpoint, image: str) -> Object:
    container, pod = _pod(LINUX, endpoint, image)
    container["command"] = ["/opt/bin/flanneld"]
    container["args"].append("--ip-masq")  # on Windows each endpoint's OutBoundNAT does it
    container["securityContext"] = {"privileged": False, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}
    container["volumeMounts"] += [
        {"name": "run", "mountPath": "/run/flannel"},
        {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
    ]
    pod["volumes"] += [
        {"name": "run", "hostPath": {"path": "/run/flannel"}},
        {"name": "xtables-lock", "hostPath": {"path": "/run/xtables.lock", "type": "FileOrCreate"}},
    ]
    return _daemon_set("kube-flannel-ds", pod)


def _windows_daemon_set(endpoint: Endpoint) -> Object:
    container, pod = _pod(WINDOWS, endpoint, HOST_PROCESS_IMAGE)
    container["command"] = [FLANNELD_EXE]
    pod["securityContext"] = {
        "windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"},
    }
    pod["os"] = {"name": "windows"}
    return _daemon_set("kube-flannel-ds-windows", pod)


def _pod(system: System, endpoint: Endpoint, image: str) -> tuple[Object, Object]:
    """The container of flanneld and its pod, as far as they are the same on both systems."""
    container: Object = {
        "name": "kube-flannel",
        "image": image,
        "args": ["--kube-subnet-mgr", "--iface=$(NODE_ADDRESS)"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NODE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            # not by way of kube-proxy: on Windows it can't start before flanneld has made the HNS network
            {"name": "KUBERNETES_SERVICE_HOST", "value": endpoint.host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(endpoint.port)},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}},
        "volumeMounts": [{"name": "flannel-cfg", "mountPath": "/etc/kube-flannel/"}],
    }
    pod: Object = {
        "nodeSelector": {"kubernetes.io/os": system.name},
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "serviceAccountName": "flannel",
        "containers": [container],
        "volumes": [{"name": "flannel-cfg", "configMap": {"name": CONFIG}}],
    }
    return container, pod


def _daemon_set(name: str, pod: Object) -> Object:
    labels = {**LABELS, "app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


PROFILES = (FlannelVxlan(),)
