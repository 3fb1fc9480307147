"""Which versions go with a release of Kubernetes, as the projects' own files say."""

from __future__ import annotations

import re
from collections.abc import Iterable

from known_good.modules import Module, Modules, newest, number
from winlab.design.catalog.pins import ModulePin, Pins
from winlab.design.catalog.versions import Versions
from winlab.errors import NotFoundError, TransferError
from winlab.supply.artifacts.build.go_module import KUBERNETES
from winlab.supply.artifacts.build.go_programs import tag

CONTAINERD = "github.com/containerd/containerd/v2"
# the modules that winlab builds from, by the name of their version
BUILT = {
    "kubernetes": KUBERNETES,
    "containerd": CONTAINERD,
    "runc": "github.com/opencontainers/runc",
    "cni_plugins": "github.com/containernetworking/plugins",
    "etcd": "go.etcd.io/etcd/server/v3",
    "coredns": "github.com/coredns/coredns",
}
CONSTANTS, DEPENDENCIES = "cmd/kubeadm/app/constants/constants.go", "build/dependencies.yaml"  # of Kubernetes
RELEASES, RUNC = "RELEASES.md", "script/setup/runc-version"  # of containerd
_KUBEADM = {"etcd": "DefaultEtcdVersion", "coredns": "CoreDNSVersion", "pause": "PauseVersion"}
_TESTED = {"crictl": "crictl", "cni_plugins": "cni", "agnhost": "agnhost"}


def kubeadm(text: str) -> dict[str, str]:
    """What kubeadm runs: etcd, CoreDNS and pause, from its constants.go.

    :raises TransferError: the file does not say so.
    """
    return {name: _only(rf'^\s*{constant} = "([^"]+)"$', text, CONSTANTS) for name, constant in _KUBEADM.items()}


def tested(text: str) -> dict[str, str]:
    """What the release is tested with: crictl, the CNI plug-ins and agnhost, from its dependencies.yaml.

    :raises TransferError: the file does not say so.
    """
    return {
        name: _only(rf'- name: "{part}"\n\s+version: "?([\w.-]+)"?$', text, DEPENDENCIES)
        for name, part in _TESTED.items()
    }


def supported(text: str, minor: str) -> str:
    """The newest minor of containerd for Kubernetes *minor*, from the table in containerd's RELEASES.md.

    :raises NotFoundError: the table does not name that Kubernetes.
    """
    row = re.search(rf"^\| {re.escape(minor)} +\| ([^|]+)\|", text, re.MULTILINE)
    minors = re.findall(r"(\d+\.\d+)\.\d+\+", row[1]) if row else []
    if not minors:
        raise NotFoundError(
            f"containerd does not say yet which of its releases go with Kubernetes {minor}.",
            why=f"The table 'Kubernetes Support' in its {RELEASES} has no such row.",
            cure="Wait for its next release, or choose one with --containerd.",
        )
    return str(max(minors, key=number))


def combination(modules: Modules, minor: str, known: Pins, containerd: str | None = None) -> tuple[Versions, Module]:
    """The newest release of Kubernetes *minor* (``1.37``) and what goes with it; the release itself, too.

    etcd and CoreDNS are those that kubeadm names, or newer patches whose images the catalog already has.

    :param containerd: the minor version of containerd, to use in place of its own table.
    :raises NotFoundError: there is no such release, or nothing goes with it.
    :raises TransferError: a module can't be fetched, or does not say what it should.
    """
    kubernetes = modules.download(KUBERNETES, _newest(modules, KUBERNETES, minor))
    if containerd is None:
        every = modules.versions(CONTAINERD)
        if not every:
            raise _none(CONTAINERD, "")
        containerd = supported(modules.download(CONTAINERD, every[-1]).text(RELEASES), minor)
    runtime = modules.download(CONTAINERD, _newest(modules, CONTAINERD, containerd))
    wants = kubeadm(kubernetes.text(CONSTANTS)) | tested(kubernetes.text(DEPENDENCIES))
    for name in ("etcd", "coredns"):
        tags = (pin.reference.rpartition(":") for pin in known.images)
        there = [version for image, _, version in tags if image.endswith(f"/{name}")]
        wants[name] = max(wants[name], newest(there, _minor(wants[name])) or wants[name], key=number)
    row = Versions.model_validate(
        {
            **wants,
            "kubernetes": kubernetes.pin.version,
            "containerd": runtime.pin.version.removeprefix("v"),
            "runc": runtime.text(RUNC).strip().removeprefix("v"),
        }
    )
    return row, kubernetes


def modules_of(row: Versions) -> list[tuple[str, str]]:
    """The modules that a combination is built from, and their versions."""
    return [(path, tag(row.by_name[name])) for name, path in BUILT.items()]


def sums(modules: Modules, rows: Iterable[Versions], known: Pins) -> list[ModulePin]:
    """The rows of all modules of these combinations that *known* does not have.

    :raises TransferError: a module can't be fetched.
    """
    every = dict.fromkeys(module for row in rows for module in modules_of(row))
    return [modules.download(*module).pin for module in every if module not in known.module_sums]


def _minor(version: str) -> str:
    return ".".join(map(str, number(version)[:2]))


def _newest(modules: Modules, path: str, minor: str) -> str:
    version = newest(modules.versions(path), minor)
    if version is None:
        raise _none(path, minor)
    return version


def _none(path: str, minor: str) -> NotFoundError:
    return NotFoundError(
        f"Go's module proxy has no release {minor} of {path}.".replace("  ", " "),
        cure="Is the proxy reachable? GOPROXY sets another.",
    )


def _only(pattern: str, text: str, file: str) -> str:
    values = set(re.findall(pattern, text, re.MULTILINE))
    if len(values) != 1:
        raise TransferError(f"{file} is not as it was: nothing in it, or more than one, is like '{pattern}'.")
    return str(values.pop())
