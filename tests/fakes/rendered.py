"""Every configuration and command line that winlab renders for Kubernetes, with the way to ask the real program.

A :class:`Case` is run in a folder of its own that holds its files. ``{folder}`` in an argument stands for that folder.
Which binary, and natively or under Wine, is the caller's business.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from winlab.design import system
from winlab.design.catalog.versions import Versions
from winlab.design.distribution import containerd, kubelet
from winlab.design.distribution.kubeadm import config
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.design.distribution.kubeadm.files import drop_in
from winlab.design.distribution.model import ClusterSettings, Member, controller_taints, worker_taints
from winlab.design.render import kube_proxy
from winlab.design.system import SystemName

FIELDS = Path(__file__).parent / "data" / "config-fields.json"
TOKEN = "abcdef.0123456789abcdef"
CREDENTIALS = JoinCredentials(TOKEN, ("sha256:" + "0a" * 32,), "0b" * 32)
POD_CIDR = "10.244.0.0/16"


@dataclass(frozen=True)
class Case:
    """One call of a real program.

    ``code``: the exit code that it must have; ``says``: a pattern that its output must hold. ``kept``: the file (or
    ``-`` for the standard output) in which the program writes back what it understood of ``source``.
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    code: int = 0
    says: str = ""
    source: str = ""
    kept: str = ""

    def problems(self, folder: Path, code: int, output: str, errors: str) -> list[str]:
        """The problems of the program's answer; empty if it is correct."""
        found = []
        if code != self.code:
            found.append(f"exit code {code}, not {self.code}")
        if not re.search(self.says, output + errors):
            found.append(f"nothing like {self.says!r} in its output")
        if self.kept and not found:
            text = output if self.kept == "-" else (folder / self.kept).read_text(encoding="utf-8")
            found += [f"not understood: {path}" for path in lost(_parsed(self.files[self.source]), _parsed(text))]
        return [f"{self.name}: {problem}\n{(output + errors)[-2000:]}" for problem in found]


def lost(wanted: Any, found: Any, at: str = "") -> list[str]:
    """The paths of *wanted* that *found* does not have, or has with another value."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            path
            for key, value in wanted.items()
            for path in lost(value, found.get(key), f"{at}.{key}" if at else str(key))
        ]
    return [] if wanted == found else [f"{at} = {wanted!r}"]


def _parsed(text: str) -> Any:
    if text.startswith("version = "):  # containerd says which version it has migrated to
        return tomllib.loads(text)["plugins"]
    return yaml.safe_load(text)


def clusters(versions: Versions) -> Iterator[tuple[str, ClusterSettings]]:
    """Each kind of cluster."""
    for name, slow, mode in (
        ("", False, "nftables"),
        ("-iptables", False, "iptables"),
        ("-emulated", True, "nftables"),
    ):
        yield (
            name,
            ClusterSettings(
                versions,
                "10.77.0.10:6443",
                ("10.77.0.10", "192.0.2.1", "controller-1"),
                POD_CIDR,
                "10.96.0.0/16",
                proxy_mode=mode,  # type: ignore[arg-type]
                preloaded=slow,
                emulated=slow,
            ),
        )


LABELS = {"winlab.dev/lab": "a", "example.com/disk": "ssd"}
CONTROLLER = Member("controller-1", "10.77.0.11", taints=controller_taints(linux_workers=0))
LINUX = Member("linux-1", "10.77.0.151", labels=LABELS)
WINDOWS = Member("node-1", "10.77.0.101", system.WINDOWS, LABELS, worker_taints(system.WINDOWS))


def kubeadm_files(versions: Versions, os: SystemName) -> dict[str, str]:
    """Every kubeadm configuration for nodes of *os*."""
    found = {}
    for suffix, cluster in clusters(versions):
        if os == "windows":
            found[f"join-windows{suffix}"] = config.join_worker(cluster, WINDOWS, CREDENTIALS)
            continue
        found[f"init{suffix}"] = config.init(cluster, CONTROLLER, TOKEN, CREDENTIALS.certificate_key)
        found[f"init-tainted{suffix}"] = config.init(cluster, Member("controller-1", "10.77.0.11"), TOKEN)
        found[f"join-controller{suffix}"] = config.join_controller(cluster, CONTROLLER, CREDENTIALS)
        found[f"join-linux{suffix}"] = config.join_worker(cluster, LINUX, CREDENTIALS)
    return found


def documents(versions: Versions) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes configuration document, with the name of its file."""
    for os in ("linux", "windows"):
        for name, text in kubeadm_files(versions, os).items():
            for document in yaml.safe_load_all(text):
                yield name, document
    for name, text in proxy_files(versions).items():
        yield name, yaml.safe_load(text)


def proxy_files(versions: Versions) -> dict[str, str]:
    """Every configuration of kube-proxy.exe."""
    node = {"node": WINDOWS.name, "address": WINDOWS.address, "pod_cidr": POD_CIDR}
    return {
        "proxy-l2bridge": kube_proxy.config(versions, **node, network="winlab"),
        "proxy-overlay": kube_proxy.config(versions, **node, network="Calico", source_vip="10.244.3.2"),
    }


def unknown_fields(minor: str, document: dict[str, Any]) -> list[str]:
    """The fields of the document that its kind does not have in that minor, by Kubernetes' own Go types."""
    known = set(json.loads(FIELDS.read_text(encoding="utf-8"))[minor][document["kind"]].split())
    return sorted(path for path in set(_paths(document)) if path not in known and f"{_parent(path)}.*" not in known)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _paths(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{at}.{key}" if at else str(key)
            yield path
            yield from _paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, at)


def _kubelet_configuration(versions: Versions, suffix: str) -> str:
    text = kubeadm_files(versions, "linux")[f"init{suffix}"]
    found = [row for row in yaml.safe_load_all(text) if row["kind"] == "KubeletConfiguration"]
    return yaml.safe_dump(found[0], sort_keys=False)


def cases(versions: Versions, os: SystemName) -> list[Case]:
    """What the real programs of these versions have to accept."""
    return [
        *_kubeadm(versions, os),
        *_kubelet(versions, os),
        *_proxy(versions, os),
        *_log_runner(versions, os),
        *_containerd(versions, os),
    ]


def _kubeadm(versions: Versions, os: SystemName) -> Iterator[Case]:
    for name, text in kubeadm_files(versions, os).items():
        yield Case(
            f"kubeadm {name}",
            "kubeadm",
            ("config", "validate", "--config={folder}/kubeadm.yaml"),
            {"kubeadm.yaml": text},
            says="(?m)^ok$",
        )


def _kubelet(versions: Versions, os: SystemName) -> Iterator[Case]:
    flags = kubelet.windows_arguments(WINDOWS) if os == "windows" else _linux_flags(versions)
    # --version after them: all flags are read, and nothing is started
    yield Case("kubelet's flags", "kubelet", (*flags, "--version"), says=re.escape(f"Kubernetes {versions.kubernetes}"))
    # It has read and checked its configuration when it misses the kubeconfig
    own = ("--root-dir={folder}/root", "--cert-dir={folder}/pki", "--kubeconfig={folder}/missing")
    windows = ("--cgroups-per-qos=false", "--enforce-node-allocatable=", "--resolv-conf=") if os == "windows" else ()
    for suffix in ("", "-emulated"):
        yield Case(
            f"kubelet's configuration{suffix}",
            "kubelet",
            (
                "--config={folder}/kubelet.yaml",
                *own,
                f"--container-runtime-endpoint={system.get(os).cri_socket}",
                *windows,
            ),
            # the machine that runs the test may still have cgroup v1, unlike winlab's guests
            {"kubelet.yaml": _kubelet_configuration(versions, suffix) + "failCgroupV1: false\n"},
            code=1,
            says=r"invalid kubeconfig: (stat|GetFileAttributesEx) .*missing",
        )


def _linux_flags(versions: Versions) -> tuple[str, ...]:
    """The flags of kubelet.service, and those that kubeadm writes for it."""
    found = re.findall(r"--[a-z-]+=[^\s\"]+", drop_in())
    extra = yaml.safe_load(kubeadm_files(versions, "linux")["join-linux"])["nodeRegistration"]["kubeletExtraArgs"]
    assert len(found) == 3
    return (*found, *(f"--{row['name']}={row['value']}" for row in extra))


def _proxy(versions: Versions, os: SystemName) -> Iterator[Case]:
    if os == "windows":
        yield Case("kube-proxy's flags", "kube-proxy", (*kube_proxy.arguments(), "--version"), says=versions.kubernetes)
        files = proxy_files(versions)
    else:
        files = {
            f"proxy{name}": yaml.safe_dump(next(row for row in yaml.safe_load_all(text) if "clusterCIDR" in row))
            for name, text in kubeadm_files(versions, "linux").items()
            if name.startswith("init")
        }
    for name, text in files.items():
        yield Case(
            f"kube-proxy {name}",
            "kube-proxy",
            ("--config={folder}/proxy.yaml", "--write-config-to={folder}/understood.yaml"),
            {"proxy.yaml": text},
            source="proxy.yaml",
            kept="understood.yaml",
        )


def _log_runner(versions: Versions, os: SystemName) -> Iterator[Case]:
    started = ("cmd.exe", "/c", "echo started") if os == "windows" else ("echo", "started")
    flags = ("--log-file={folder}/log", *kubelet.runner_flags(versions))
    yield Case("kube-log-runner's flags", "kube-log-runner", (*flags, *started))
    yield Case("kube-log-runner, the exit code", "kube-log-runner", (*flags, *_fails(os)), code=1)


def _fails(os: SystemName) -> tuple[str, ...]:
    return ("cmd.exe", "/c", "exit 1") if os == "windows" else ("false",)


def _containerd(versions: Versions, os: SystemName) -> Iterator[Case]:
    yield Case(
        "containerd's configuration",
        "containerd",
        ("--config={folder}/config.toml", "config", "dump"),
        {"config.toml": containerd.config(versions, system.get(os))},
        source="config.toml",
        kept="-",
    )


def refusals(versions: Versions, os: SystemName) -> list[Case]:
    """What the programs must refuse, or lose: proof that :func:`cases` can fail."""
    wrong = {
        "join": kubeadm_files(versions, os)["join-windows" if os == "windows" else "join-linux"].replace(
            "caCertHashes", "caCertHashs"
        ),
        "type": _kubelet_configuration(versions, "").replace("failSwapOn: false", "failSwapOn: [1]"),
    }
    return [
        Case(
            "kubeadm, misspelt",
            "kubeadm",
            ("config", "validate", "--config={folder}/kubeadm.yaml"),
            {"kubeadm.yaml": wrong["join"]},
            code=1,
            says='unknown field "discovery.bootstrapToken.caCertHashs"',
        ),
        *(
            Case(f"kubelet, {flag}", "kubelet", (f"{flag}=x", "--version"), code=1, says=f"unknown flag: {flag}")
            for flag in ("--network-plugin", "--container-runtime", "--pod-infra-container-image")
            if flag != "--pod-infra-container-image" or versions.minor >= 35
        ),
        Case(
            "kubelet, a wrong type",
            "kubelet",
            ("--config={folder}/kubelet.yaml", "--root-dir={folder}/root", "--kubeconfig={folder}/missing"),
            {"kubelet.yaml": wrong["type"]},
            code=1,
            says="cannot unmarshal array into Go struct field KubeletConfiguration.failSwapOn",
        ),
    ]
