"""Builds a cluster's container images from programs, as their projects' Dockerfiles do, in one layer each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from winlab.design import system
from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.design.catalog.builds import GoBuild
from winlab.design.system import LINUX
from winlab.events import Progress
from winlab.supply.artifacts.build import debs
from winlab.supply.artifacts.build.go_programs import tag
from winlab.supply.artifacts.oci import write
from winlab.supply.artifacts.oci.write import Config, Folder, LayerFile

LAYOUT = 1  # increment when images are made differently, so that cached ones are not used
BIN = "/usr/local/bin"
# The parts of its Alpine base that busybox provides; netexec's /shell runs /bin/sh
APPLETS = (
    *("sh", "ash", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "dd", "df", "dirname", "du", "echo", "env"),
    *("false", "find", "free", "grep", "head", "hostname", "id", "ifconfig", "ip", "kill", "ln", "ls", "md5sum"),
    *("mkdir", "mktemp", "mount", "mv", "nc", "netstat", "nslookup", "ping", "ps", "pwd", "readlink", "rm", "route"),
    *("sed", "seq", "sha256sum", "sleep", "sort", "stat", "tail", "tar", "tee", "test", "timeout", "top", "touch"),
    *("tr", "traceroute", "true", "uname", "uniq", "vi", "wc", "wget", "whoami", "xargs", "yes"),
)
_IPTABLES = tuple(
    f"{base}{end}" for base in ("iptables", "ip6tables") for end in ("", "-save", "-restore")
)  # alternatives(8) makes these links on Debian


@dataclass(frozen=True)
class Layout:
    """An image: programs and where they go, Debian packages, other files, and how it starts."""

    programs: Mapping[Program, str]
    config: Config
    packages: tuple[str, ...] = ()
    items: tuple[LayerFile | Folder, ...] = ()
    recipe: str = ""  # of an extension's image: what else decides its bytes


def _component(name: str, version: str, _kubernetes: str) -> Layout:
    # build/server-image/Dockerfile; manifests of static pods name the program, which PATH finds
    programs = {
        Program(name, version, LINUX.name): f"{BIN}/{name}",
        Program("kube-log-runner", version, LINUX.name): "/go-runner",
    }
    return Layout(programs, Config(entrypoint=("/go-runner",)))


def _proxy(name: str, version: str, kubernetes: str) -> Layout:
    # build/common.sh: its base image is distroless-iptables
    plain = _component(name, version, kubernetes)
    links = tuple(LayerFile(f"/usr/sbin/{name}", link="xtables-nft-multi") for name in _IPTABLES)
    return Layout(plain.programs, plain.config, ("nftables", "iptables"), links)


def _etcd(_name: str, version: str, _kubernetes: str) -> Layout:
    # https://github.com/kubernetes/kubernetes/blob/master/cluster/images/etcd/Dockerfile; its manifest names etcd
    programs = {Program("etcd", version, LINUX.name): f"{BIN}/etcd"}
    return Layout(programs, Config())


def _coredns(_name: str, version: str, _kubernetes: str) -> Layout:
    # its Dockerfile, but with root: another user needs a capability on the file; the usual manifest grants root just
    # that capability
    programs = {Program("coredns", version, LINUX.name): "/coredns"}
    return Layout(programs, Config(entrypoint=("/coredns",), working_dir="/"))


def _pause(_name: str, version: str, _kubernetes: str) -> Layout:
    # build/pause/Dockerfile
    return Layout({Program("pause", version, LINUX.name): "/pause"}, Config(entrypoint=("/pause",), user="65535:65535"))


def _agnhost(_name: str, _version: str, kubernetes: str) -> Layout:
    # test/images/agnhost/Dockerfile
    applets = tuple(LayerFile(f"/usr/bin/{name}", link="busybox") for name in APPLETS)
    extra: tuple[LayerFile | Folder, ...] = (
        *applets,
        LayerFile("/agnhost-2", link="agnhost"),
        Folder("/uploads"),
        Folder("/var/registry"),
    )
    programs = {Program("agnhost", kubernetes, LINUX.name): "/agnhost"}
    return Layout(programs, Config(entrypoint=("/agnhost",), cmd=("pause",)), ("busybox-static",), extra)


_IMAGES: Mapping[str, Callable[[str, str, str], Layout]] = {
    "kube-apiserver": _component,
    "kube-controller-manager": _component,
    "kube-scheduler": _component,
    "kube-proxy": _proxy,
    "etcd": _etcd,
    "coredns/coredns": _coredns,
    "pause": _pause,
    "e2e-test-images/agnhost": _agnhost,
}

# What Debian's and distroless' base images have: names, and the configuration of name look-up that Go reads
_BASE = (
    Folder("/tmp", 0o1777),  # noqa: S108 - of the image
    Folder("/run"),
    Folder("/root", 0o700),
    LayerFile(
        "/etc/passwd", b"root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n", 0o644
    ),
    LayerFile("/etc/group", b"root:x:0:\nnobody:x:65534:\n", 0o644),
    LayerFile("/etc/nsswitch.conf", b"hosts: files dns\n", 0o644),
)


def layout(image: ContainerImage, kubernetes: str, builds: Sequence[GoBuild] = ()) -> Layout | None:
    """How *image* is built, or None if it is not built here.

    :param kubernetes: the version of Kubernetes that agnhost is taken from; its images are numbered differently.
    :param builds: how the lab's extensions build their own images.
    """
    repository, _, version = image.reference.rpartition(":")
    for row in (row for build in builds if build.os == image.os for row in build.images):
        if row.repository == repository:
            programs = {Program(name, version, image.os): path for name, path in row.programs.items()}
            config = Config(entrypoint=row.entrypoint, cmd=row.cmd, user=row.user)
            return Layout(programs, config, recipe=row.model_dump_json())
    match = re.fullmatch(r"registry\.k8s\.io/([a-z0-9/-]+):([\w.-]+)", image.reference)
    if system.get(image.os).own_layers or match is None or match[1] not in _IMAGES:
        return None
    return _IMAGES[match[1]](match[1], tag(match[2]), kubernetes)


def make(
    image: ContainerImage, how: Layout, programs: Mapping[Program, Path], target: Path, work: Path, progress: Progress
) -> None:
    """Write *image* as an OCI archive to *target*.

    :param programs: the files of the programs that *how* names.
    :param work: an empty folder.
    :raises CommandError: the Debian packages can't be fetched.
    """
    items: list[LayerFile | Folder] = [*_BASE]
    if how.packages:
        scratch = work / "packages"
        scratch.mkdir()
        items += debs.fetch(how.packages, scratch, progress)
    items += how.items
    items += [LayerFile(path, programs[program]) for program, path in how.programs.items()]
    progress.say(f"writing {image}")
    blobs = work / "blobs"
    blobs.mkdir()
    write.write(target, image.reference, items, how.config, work=blobs)
