"""The results of a worker's steps on a node, put there manually: so that a test of one script needs no other."""

from __future__ import annotations

import json
import shutil
from typing import Any

from powershell.cases import COMMAND, CONFIG, OLD_KEY, PROXY
from powershell.doubles.machine import Machine

CONTAINERD = (
    r'"C:\Program Files\containerd\containerd.exe" --run-service --log-file C:\var\log\containerd\containerd.log'
)
SERVICES = r"HKLM\SYSTEM\CurrentControlSet\Services"
PROXY_NETWORK = r"C:\winlab\proxy-network.txt"
NET: dict[str, Any] = {
    "ID": "networks-1",
    "Name": "cbr0",
    "Type": "L2Bridge",
    "Subnets": [{"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.1"}],
}
POLICY = {"ID": "policies-1", "References": ["/endpoints/endpoints-1"]}
VIP_CONFIG = "kind: X\nwinkernel:\n  sourceVip: 10.244.2.2\n  networkName: cbr0\n  enableDSR: false\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n"  # of the kubelet
AUTHORIZED = (r"C:\ProgramData\ssh\administrators_authorized_keys", r"C:\Users\Administrator\.ssh\authorized_keys")
HOST_KEY = r"C:\ProgramData\ssh\ssh_host_ed25519_key"
LISTENER = r"WSMan\localhost\Listener\Listener_2"
JOINED = "C:\\etc\\kubernetes\\kubelet.conf"


def service(
    node: Machine, name: str, command: str = "", status: str = "Running", depends: tuple[str, ...] = (), **more: object
) -> None:
    """A service that starts by itself, or one in its current state."""
    state = node.state()
    state["services"][name] = {"status": status, "start": "Automatic", "depends": list(depends), **more}
    node.state(state)
    if command:
        node.registry(rf"{SERVICES}\{name}", "ImagePath", command)


def change(node: Machine, **parts: object) -> None:
    """Other parts of the state of Windows."""
    node.state(node.state() | parts)


def write(node: Machine, path: str, text: str = "") -> None:
    """A file on a drive, by its path in Windows."""
    file = node.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(node: Machine, path: str) -> str:
    return node.path(path).read_text()


def _copy(node: Machine, part: str, to: str, names: tuple[str, ...] = ()) -> None:
    folder = node.path(to)
    folder.mkdir(parents=True, exist_ok=True)
    for file in (node.d / part).iterdir():
        if not names or file.name in names:
            shutil.copy(file, folder / file.name)
            (folder / file.name).chmod(0o755)


def listening(node: Machine) -> None:
    """After bootstrap.ps1: who logs in, and what the node is recognized by."""
    for path in AUTHORIZED:
        write(node, path, f"{OLD_KEY}\n")
    write(node, HOST_KEY, "old")
    write(node, f"{HOST_KEY}.pub", "old")
    write(node, r"C:\winlab\ready.txt", "node-1")
    for name, value in (("Transport", "HTTPS"), ("Address", "*"), ("CertificateThumbprint", "0123")):
        node.registry(LISTENER, name, value)


def featured(node: Machine) -> None:
    """After features.ps1, and its restart."""
    change(node, features=dict.fromkeys(node.state()["features"], "Installed"))
    service(node, "RemoteAccess")
    service(node, "hns")
    write(node, r"C:\winlab\features.txt", "Containers,RemoteAccess,Routing,RSAT-RemoteAccess-PowerShell")


def contained(node: Machine) -> None:
    """After containerd.ps1."""
    featured(node)
    _copy(node, "programs", r"C:\Program Files\containerd", ("containerd.exe", "ctr.exe", "runhcs.exe"))
    write(node, r"C:\Program Files\containerd\config.toml", CONFIG["config"])
    pipe = "npipe:////./pipe/containerd-containerd"
    text = f"runtime-endpoint: {pipe}\nimage-endpoint: {pipe}\n"
    write(node, r"C:\Users\Administrator\.crictl\crictl.yaml", text)
    for folder in (r"C:\etc\cni\net.d", r"C:\opt\cni\bin", r"C:\var\log\containerd"):
        node.path(folder).mkdir(parents=True, exist_ok=True)
    service(node, "containerd", CONTAINERD)


def installed(node: Machine) -> None:
    """After binaries.ps1."""
    contained(node)
    names = ("kubeadm.exe", "kubelet.exe", "kubectl.exe", "kube-proxy.exe", "kube-log-runner.exe")
    _copy(node, "programs", r"C:\k", names)
    _copy(node, "cni", r"C:\opt\cni\bin")
    for folder in (
        r"C:\etc\kubernetes\pki",
        r"C:\etc\kubernetes\manifests",
        r"C:\var\lib\kubelet",
        r"C:\var\log\kubelet",
        r"C:\var\log\kube-proxy",
        r"C:\var\log\kubeadm",
    ):
        node.path(folder).mkdir(parents=True, exist_ok=True)


def ready(node: Machine) -> None:
    """After kubelet.ps1: ready to join."""
    installed(node)
    service(node, "kubelet", COMMAND["command"], "Stopped", ("containerd",))


def joined(node: Machine) -> None:
    """After join.ps1."""
    ready(node)
    write(node, JOINED, "    server: https://10.77.0.10:6443\n")
    write(node, r"C:\var\lib\kubelet\pki\kubelet-client-current.pem", CERTIFICATE)
    write(node, r"C:\winlab\joined.txt", "10.77.0.10:6443")
    service(node, "kubelet", COMMAND["command"], "Running", ("containerd",))


def asking(node: Machine) -> None:
    """After kubelet.ps1, in an external cluster: once it starts, the kubelet gets a certificate that it asks for."""
    installed(node)
    makes = {r"C:\var\lib\kubelet\pki\kubelet-client-current.pem": CERTIFICATE}
    service(node, "kubelet", COMMAND["command"], "Stopped", ("containerd",), makes=makes)


def proxied(node: Machine) -> None:
    """After proxy.ps1, whose endpoint exists."""
    joined(node)
    row = {"ID": "endpoints-1", "Name": "cbr0_ep", "IPAddress": "10.244.2.2", "VirtualNetwork": "networks-1"}
    change(node, endpoints=[row], networks=[NET], policies=[POLICY])
    folder = r"C:\var\lib\kube-proxy"
    write(node, rf"{folder}\config.yaml", VIP_CONFIG)
    write(node, PROXY_NETWORK, NET["ID"])
    write(node, rf"{folder}\kubeconfig", PROXY["kubeconfig"])
    service(node, "kube-proxy", PROXY["command"], depends=("hns",))


def pending(node: Machine) -> None:
    """winlab's own mark: Windows wants a restart."""
    node.registry(r"HKLM\SOFTWARE\winlab-restart", "(volatile)", 1)


def payload(node: Machine, name: str, body: str, part: str = "programs") -> None:
    """Another program on the CD, with its digest in payload.json."""
    digest = node.program(node.d / part / name, body)
    listed = node.payload()
    listed[part][name] = {"version": "v2", "sha256": digest}
    node.payload(listed)


def json_of(node: Machine, path: str) -> object:
    return json.loads(read(node, path))
