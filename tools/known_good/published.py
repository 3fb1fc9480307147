"""Where the parts of a combination are published: rows of pins for those that the catalog does not have."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.design import system
from winlab.design.catalog.pins import ImagePin, Pins, ProgramPin
from winlab.design.catalog.versions import Versions
from winlab.design.system import SystemName

GITHUB = "https://github.com"


@dataclass(frozen=True)
class Place:
    """One publisher's place for the programs of a version.

    In ``url``: the version without and with ``v`` ({plain}, {tag}), and {file}, the program's. ``sums`` is what follows
    the URL, or another URL. ``member``: the path in the archive.
    """

    part: str
    os: SystemName
    url: str
    sums: str
    programs: tuple[str, ...]
    member: str | None = None

    def rows(self, version: str) -> list[ProgramPin]:
        """The rows of a version as the catalog writes it."""
        rows = []
        for name in self.programs:
            words = {"plain": version.removeprefix("v"), "file": system.get(self.os).program_file(name)}
            words["tag"] = f"v{words['plain']}"
            url = self.url.format(**words)
            sums = self.sums.format(**words) if self.sums.startswith("https:") else url + self.sums
            member = self.member.format(**words) if self.member else None
            rows.append(ProgramPin(name=name, version=version, os=self.os, url=url, sums_url=sums, member=member))
        return rows


def _kubernetes(os: SystemName, *programs: str) -> Place:
    return Place("kubernetes", os, f"https://dl.k8s.io/{{tag}}/bin/{os}/amd64/{{file}}", ".sha256", programs)


def _containerd(os: SystemName, *programs: str) -> Place:
    url = f"{GITHUB}/containerd/containerd/releases/download/{{tag}}/containerd-{{plain}}-{os}-amd64.tar.gz"
    return Place("containerd", os, url, ".sha256sum", programs, "bin/{file}")


def _crictl(os: SystemName) -> Place:
    url = f"{GITHUB}/kubernetes-sigs/cri-tools/releases/download/{{tag}}/crictl-{{tag}}-{os}-amd64.tar.gz"
    return Place("crictl", os, url, ".sha256", ("crictl",), "{file}")


def _plugins(os: SystemName, *programs: str) -> Place:
    url = f"{GITHUB}/containernetworking/plugins/releases/download/{{tag}}/cni-plugins-{os}-amd64-{{tag}}.tgz"
    return Place("cni_plugins", os, url, ".sha256", programs, "./{file}")


PLACES = (
    _kubernetes("linux", "kubeadm", "kubelet", "kubectl"),
    _kubernetes("windows", "kubeadm", "kubelet", "kubectl", "kube-proxy", "kube-log-runner"),
    _containerd("linux", "containerd", "containerd-shim-runc-v2", "ctr"),
    _containerd("windows", "containerd", "ctr", "containerd-shim-runhcs-v1"),
    Place(
        "runc",
        "linux",
        f"{GITHUB}/opencontainers/runc/releases/download/{{tag}}/runc.amd64",
        f"{GITHUB}/opencontainers/runc/releases/download/{{tag}}/runc.sha256sum",
        ("runc",),
    ),
    _crictl("linux"),
    _crictl("windows"),
    _plugins("linux", "bridge", "host-local", "loopback", "portmap"),
    _plugins("windows", "win-bridge", "win-overlay", "host-local"),
)
REGISTRY = "registry.k8s.io"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
IMAGES: tuple[tuple[str, str, tuple[SystemName, ...]], ...] = (
    *((name, "kubernetes", ("linux",)) for name in CONTROL_PLANE),
    ("etcd", "etcd", ("linux",)),
    ("coredns/coredns", "coredns", ("linux",)),
    ("pause", "pause", ("linux", "windows")),
    ("e2e-test-images/agnhost", "agnhost", ("linux", "windows")),
)


def lacking(row: Versions, known: Pins) -> Pins:
    """The rows that *known* lacks for the combination. Their publishers are asked for the digests with each fetch."""
    versions = row.by_name
    programs = [pin for place in PLACES for pin in place.rows(versions[place.part])]
    images = [
        ImagePin(reference=f"{REGISTRY}/{name}:{versions[part]}", os=os)
        for name, part, systems in IMAGES
        for os in systems
    ]
    return Pins(
        programs=tuple(pin for pin in programs if known.program(pin.artifact) is None),
        images=tuple(pin for pin in images if known.image(pin.artifact) is None),
    )
