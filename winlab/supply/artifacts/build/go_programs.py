"""Which Go module each program is built from, and how, as in the projects' own build scripts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from winlab.design.catalog.artifact import Program
from winlab.design.catalog.builds import GoBuild
from winlab.design.distribution.known import DISTRIBUTIONS
from winlab.design.system import LINUX, WINDOWS, SystemName
from winlab.supply.artifacts.build.go_module import KUBERNETES

OWN = Path(__file__).resolve().parent / "go"  # winlab's own small programs


@dataclass(frozen=True, eq=False)
class Part:
    """A module, the packages of its programs for each system, and how they are compiled.

    ``stamps`` returns the variables to set, given a version and the time of its release; ``own`` is the folder of a
    module that ships with winlab.
    """

    module: str
    packages: Mapping[SystemName, Mapping[str, str]]
    stamps: Callable[[str, str], Mapping[str, str]]
    tags: tuple[str, ...] = ()
    cgo: bool = False
    own: Path | None = None
    recipe: str = ""  # of an extension's program: what else decides its bytes


def _kubernetes_stamps(version: str, time: str) -> dict[str, str]:
    """As hack/lib/version.sh does; "archive" is its word for sources without git, whose commit is unknown.

    Without gitVersion the programs would report v0.0.0.
    """
    major, minor = [*version.removeprefix("v").split("."), ""][:2]
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "",
        "gitTreeState": "archive",
        "buildDate": time,
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = {f"{package}.{name}": value for package in packages for name, value in values.items()}
    return stamps | {"main.Version": version}  # agnhost's; the other programs have no such variable


def _under(base: str, *names: str) -> dict[str, str]:
    return {name.rpartition("/")[2]: f"{base}/{name}" for name in names}


_CONTAINERD = "github.com/containerd/containerd/v2"
_PLUGINS = "github.com/containernetworking/plugins"
_RUNC = "github.com/opencontainers/runc"
_ETCD = "go.etcd.io/etcd/server/v3"
_COREDNS = "github.com/coredns/coredns"

_OWN = (name for distribution in DISTRIBUTIONS for name in distribution.own_programs)
_KUBE = {
    **_under(f"{KUBERNETES}/cmd", *_OWN, "kubelet", "kubectl", "kube-proxy"),
    "kube-log-runner": "k8s.io/component-base/logs/kube-log-runner",
    "agnhost": f"{KUBERNETES}/test/images/agnhost",
}
_CONTROL_PLANE = _under(f"{KUBERNETES}/cmd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

PARTS = (
    Part(KUBERNETES, {LINUX.name: _KUBE | _CONTROL_PLANE, WINDOWS.name: _KUBE}, _kubernetes_stamps),
    Part(
        _CONTAINERD,
        {
            LINUX.name: _under(f"{_CONTAINERD}/cmd", "containerd", "ctr", "containerd-shim-runc-v2"),
            WINDOWS.name: _under(f"{_CONTAINERD}/cmd", "containerd", "ctr"),
        },
        # as its Makefile; a module does not contain the revision
        lambda version, _: {f"{_CONTAINERD}/version.Version": version, f"{_CONTAINERD}/version.Revision": ""},
    ),
    Part(
        _RUNC,
        {LINUX.name: {"runc": _RUNC}},
        lambda _version, _time: {},  # its version is in its source
        # its Makefile's target "static"; without libpathrs (since 1.5), a library in Rust that Debian does not have
        tags=("seccomp", "urfave_cli_no_docs", "netgo", "osusergo"),
        cgo=True,
    ),
    Part(
        _PLUGINS,
        {
            LINUX.name: _under(
                f"{_PLUGINS}/plugins", "main/bridge", "main/loopback", "ipam/host-local", "meta/portmap"
            ),
            WINDOWS.name: _under(
                f"{_PLUGINS}/plugins", "main/windows/win-bridge", "main/windows/win-overlay", "ipam/host-local"
            ),
        },
        lambda version, _: {f"{_PLUGINS}/pkg/utils/buildversion.BuildVersion": version},
    ),
    Part(_ETCD, {LINUX.name: {"etcd": _ETCD}}, lambda _version, _time: {}),  # its version is a constant
    Part(_COREDNS, {LINUX.name: {"coredns": _COREDNS}}, lambda version, _: {f"{_COREDNS}/coremain.gitTag": version}),
    Part(
        "winlab.invalid/pause",
        {LINUX.name: {"pause": "winlab.invalid/pause"}},
        lambda _version, _time: {},
        own=OWN / "pause",
    ),
)


def part(program: Program, parts: Sequence[Part] = PARTS) -> Part | None:
    """The one of *parts* that has *program*, or None."""
    return next((part for part in parts if program.name in part.packages.get(program.os, {})), None)


def systems(name: str, parts: Sequence[Part] = PARTS) -> list[SystemName]:
    """The systems that a program of that name is built for."""
    return [system for part in parts for system, packages in part.packages.items() if name in packages]


def of_extension(build: GoBuild) -> Part:
    """The part that an extension's ``pins.yaml`` describes."""

    def stamps(version: str, time: str) -> dict[str, str]:
        return {name: value.format(version=version, date=time) for name, value in build.stamps.items()}

    recipe = build.model_dump_json(include={"stamps"})
    return Part(build.module, {build.os: build.programs}, stamps, build.tags, recipe=recipe)


def tag(version: str) -> str:
    """A release's version as Go modules have it: with ``v``, and without the revision of an image (``3.6.16-0``)."""
    plain = version.removeprefix("v")
    head, _, last = plain.rpartition("-")
    return f"v{head}" if head and last.isdigit() else f"v{plain}"
