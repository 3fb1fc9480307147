"""Settings of the worker scripts, and their expected results. docs/worker-scripts.md has the contract."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from powershell.doubles.machine import Told

TOKEN = "abcdef.0123456789abcdef"
FEATURES = {"release": "2022", "features": ["Containers", "Routing", "RSAT-RemoteAccess-PowerShell", "RemoteAccess"]}
CONFIG = {"config": "version = 2\n"}
COMMAND = {"command": r"C:\k\kube-log-runner.exe --log-file=C:/var/log/kubelet/kubelet.log C:\k\kubelet.exe --v=1"}
JOIN = {
    "name": "node-1",
    "configuration": "kind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n"
    f'    apiServerEndpoint: "10.77.0.10:6443"\n    token: "{TOKEN}"\n',
}
MEMBER = {
    "name": "node-1",
    "kubeconfig": "clusters:\n- cluster:\n    server: https://192.0.2.10:6443\n",
    "client_ca": "-----BEGIN CERTIFICATE-----\nCA\n",
    "configuration": "kind: KubeletConfiguration\nrotateCertificates: true\n",
}
NETWORK = {
    "type": "L2Bridge",
    "name": "cbr0",
    "subnet": "10.244.2.0/24",
    "gateway": "10.244.2.1",
    "node_address": "10.77.0.12",
    "endpoint": {"name": "cbr0_ep", "address": "10.244.2.2"},
}
CNI = {"files": {"10-winlab.conflist": '{"name":"cbr0","plugins":[]}'}, "network": NETWORK}
PROXY = {
    "command": r"C:\k\kube-proxy.exe --config=C:/var/lib/kube-proxy/config.yaml",
    "kubeconfig": "apiVersion: v1\n",
    "config": "kind: X\nwinkernel:\n  networkName: cbr0\n  enableDSR: false\n",
    "source_endpoint": "cbr0_ep",
}
MOTD = r"HKLM\SOFTWARE\motd"
GIVEN: dict[str, Any] = {
    "files": {r"C:\ProgramData\motd\motd.txt": "hell\u00f6\r\n", r"C:\ProgramData\empty.txt": ""},
    "registry": [
        {"key": MOTD, "name": "number", "type": "dword", "data": "0000000a"},
        {"key": MOTD, "name": "large", "type": "dword", "data": "ffffffff"},
        {"key": MOTD, "name": "text", "type": "string", "data": "a b"},
        {"key": rf"{MOTD}\more", "name": "lines", "type": "multistring", "data": "a\nb"},
    ],
}
ROUTES = [{"to": "10.244.1.0/24", "via": "10.77.0.11"}, {"to": "10.244.3.0/25", "via": "10.77.0.13"}]
OLD_KEY, NEW_KEY = "ssh-ed25519 AAAAold winlab lab", "ssh-ed25519 AAAAnew winlab try"
LOGINS: dict[str, Any] = {
    "ssh_key": NEW_KEY,
    "host_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nbmV3\n-----END OPENSSH PRIVATE KEY-----\n",
    "host_key_public": "ssh-ed25519 AAAAhost node-1",
    "former": None,
    "password": "An0ther-secret",
    "pfx": "AAEC/w==",
    "pfx_password": "pfx secret",
}


def done(told: Told, **wanted: Any) -> Any:
    """The result of a script that succeeded, with at least these values."""
    assert told.code == 0, (told.out, told.err)
    assert isinstance(told.result, dict), told.out
    assert {name: told.result.get(name) for name in wanted} == wanted
    return told.result


def refused(told: Told, text: str) -> None:
    """A script that refuses: exit code 1, the reason on the standard error alone, no result."""
    assert told.code == 1, (told.out, told.err)
    assert told.result is None
    assert text in "\n".join(told.err), told.err


def image(path: Path, name: str, entry_name: str = "index.json") -> None:
    """An archive of a container image, as far as ``ctr images import`` here looks at it."""
    row = {"digest": "sha256:" + "a" * 64, "annotations": {"io.containerd.image.name": name}}
    index = json.dumps({"manifests": [row]}).encode()
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(entry_name)
        entry.size = len(index)
        archive.addfile(entry, io.BytesIO(index))
