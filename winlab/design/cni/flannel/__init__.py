r"""``flannel-vxlan``: flanneld on every node, with the reference plug-ins under it on both systems. Pure.

Facts: flannel v0.28.10's Documentation/kube-flannel.yml and backends.md, pkg/backend/vxlan/vxlan_windows.go,
pkg/subnet/kube/kube.go. Flannel's own CNI plug-in only turns the node's pod CIDR into a configuration of the reference
plug-ins. winlab knows that CIDR and writes the configuration itself, so that neither system needs it.

No Windows image of flannel is published any more (kubernetes-sigs/sig-windows-tools#385). flanneld.exe is, but is not a
Windows service: a HostProcess pod of a tiny image runs it from the node's folder of CNI plug-ins.

An external cluster whose flannel runs on Linux alone gets the same pod. The halves know each other only by their nodes'
annotations. So the other one may also run in a distribution's own agents. The pod logs in by a kubeconfig (flannel's
flag ``--kubeconfig-file``), because the API server's certificate may lack the address by which the lab reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

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
HALF_NAMESPACE = "kube-system"  # where pods may be privileged, whatever the cluster's standards for other namespaces
HALF_NAME = "winlab-flannel"
CONFIG = "kube-flannel-cfg"
HOST_PROCESS_IMAGE = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0"
FLANNELD_EXE = r"C:\opt\cni\bin\flanneld.exe"
CONFIG_FOLDER = "/etc/kube-flannel/"
# with a drive: kubeconfigs may have relative paths, and on Windows one without a drive is relative
TOKEN_FOLDER = "C:/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder


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

    has_half = True
    backend = ("vxlan", WINDOWS_VNI)
    # the last one comes from other flannel manifests, which a joined cluster may use
    windows_daemon_sets = ("kube-flannel-ds-windows", "kube-flannel-ds-windows-amd64")
    daemon_sets = ("kube-flannel-ds", *windows_daemon_sets, HALF_NAME)
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
        configuration = _config_map(CONFIG, NAMESPACE, {"net-conf.json": _settings(network)})
        account = [_namespace(), *_account("flannel", NAMESPACE)]
        objects = [*account, configuration, _linux_daemon_set(endpoint, _image(versions))]
        if has_hns(nodes):
            objects.append(_windows_daemon_set(endpoint))
        return objects

    def windows_half(self, network: PodNetwork, endpoint: Endpoint) -> list[Object]:
        """Rights, the configuration and a kubeconfig, and flanneld.exe in a HostProcess pod."""
        files = {"net-conf.json": _settings(network), "kubeconfig": _kubeconfig(endpoint)}
        container, pod = _windows_pod(endpoint)
        container["args"].append(f"--kubeconfig-file=C:{CONFIG_FOLDER}kubeconfig")
        pod["serviceAccountName"] = HALF_NAME
        pod["volumes"] = [{"name": "flannel-cfg", "configMap": {"name": HALF_NAME}}]
        return [
            *_account(HALF_NAME, HALF_NAMESPACE),
            _config_map(HALF_NAME, HALF_NAMESPACE, files),
            _daemon_set(HALF_NAME, HALF_NAMESPACE, pod),
        ]

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


def _namespace() -> Object:
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _account(name: str, namespace: str) -> list[Object]:
    rights = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": LABELS},
            "rules": rights,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": LABELS},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def _settings(network: PodNetwork) -> str:
    # flannel's own VNI and port on Linux are 1 and 8472: Windows can't do either
    backend = {"Type": "vxlan", "VNI": network.vni, "Port": network.port}
    return json.dumps({"Network": network.pod_cidr, "EnableNFTables": False, "Backend": backend}, indent=2) + "\n"


def _config_map(name: str, namespace: str, files: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "data": dict(files),
    }


def _kubeconfig(endpoint: Endpoint) -> str:
    """A kubeconfig without secrets: it names the files of the pod's own account."""
    cluster = {
        "server": f"https://{endpoint.host}:{endpoint.port}",
        "tls-server-name": endpoint.name,
        "certificate-authority": f"{TOKEN_FOLDER}/ca.crt",
    }
    row = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "flannel", "user": {"tokenFile": f"{TOKEN_FOLDER}/token"}}],
        "contexts": [{"name": "flannel", "context": {"cluster": "cluster", "user": "flannel"}}],
        "current-context": "flannel",
    }
    return yaml.safe_dump(row, sort_keys=False)


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
    return _daemon_set("kube-flannel-ds", NAMESPACE, pod)


def _windows_daemon_set(endpoint: Endpoint) -> Object:
    _, pod = _windows_pod(endpoint)
    return _daemon_set("kube-flannel-ds-windows", NAMESPACE, pod)


def _windows_pod(endpoint: Endpoint) -> tuple[Object, Object]:
    container, pod = _pod(WINDOWS, endpoint, HOST_PROCESS_IMAGE)
    container["command"] = [FLANNELD_EXE]
    pod["securityContext"] = {
        "windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"},
    }
    pod["os"] = {"name": "windows"}
    return container, pod


def _pod(system: System, endpoint: Endpoint, image: str) -> tuple[Object, Object]:
    """The container of flanneld and its pod, as far as they are the same on both systems."""
    container: Object = {
        "name": "kube-flannel",
        "image": image,
        "args": ["--kube-subnet-mgr", "--iface=$(NODE_ADDRESS)"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NODE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            *([] if endpoint.name else _address(endpoint)),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}},
        "volumeMounts": [{"name": "flannel-cfg", "mountPath": CONFIG_FOLDER}],
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


def _address(endpoint: Endpoint) -> list[Object]:
    """Variables by which a pod reaches the API server without kube-proxy, which on Windows needs flanneld's network."""
    values = {"KUBERNETES_SERVICE_HOST": endpoint.host, "KUBERNETES_SERVICE_PORT": str(endpoint.port)}
    return [{"name": name, "value": value} for name, value in values.items()]


def _daemon_set(name: str, namespace: str, pod: Object) -> Object:
    labels = {**LABELS, "app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


PROFILES = (FlannelVxlan(),)
