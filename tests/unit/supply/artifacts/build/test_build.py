"""The source ``build``: what it refuses, that it compiles once and by module, and what the images are made of."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Program
from winlab.errors import HostError, NotFoundError, UsageError
from winlab.events import Progress, Quiet
from winlab.supply.artifacts import store
from winlab.supply.artifacts.build import debs, go_programs, toolchain
from winlab.supply.artifacts.build import images as build_images
from winlab.supply.artifacts.build import source as build
from winlab.supply.artifacts.build.go_module import GoModule, Target, program
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.build.toolchain import Go
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci.write import LayerFile

K8S = "v1.36.3"
KUBELET = Program("kubelet", K8S, "windows")
KUBEADM = Program("kubeadm", K8S, "windows")
PROXY = ContainerImage(f"registry.k8s.io/kube-proxy:{K8S}", "linux")
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")


class Compiler:
    """Stands for Go: writes the names of packages, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.go = Go(Path("/go"), "go1.26.8")
        self.runs: list[tuple[GoModule, Target]] = []
        self.stamps: dict[str, str] = {}

    def compile_all(
        self,
        module: GoModule,
        target: Target,
        stamps: Callable[[str], Mapping[str, str]],
        work: Path,
        progress: Progress,
    ) -> tuple[dict[str, Path], Go]:
        assert list(work.iterdir()) == []
        self.runs.append((module, target))
        self.stamps = dict(stamps("2026-07-22T18:07:38Z"))
        made = {}
        for package in target.packages:
            made[package] = work / program(package)
            made[package].write_text(
                f"{package} {module.version} {target.os} {len(self.runs) if module.source else ''}"
            )
        return made, self.go


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    fake = Compiler()
    monkeypatch.setattr(build, "compile_all", fake.compile_all)
    monkeypatch.setattr(toolchain, "here", lambda: [fake.go])
    monkeypatch.setattr(build, "check_c", lambda tags: None)
    monkeypatch.setattr(debs, "fetch", lambda packages, work, progress: [LayerFile(f"/usr/bin/{packages[0]}", b"deb")])
    return fake


def test_modules_are_built_with_their_pinned_sums(compiler: Compiler) -> None:
    BuildSource(K8S, sums=versions.load().pins.module_sums).obtain(KUBELET, Quiet())
    ((module, _),) = compiler.runs
    assert module.sum == next(pin.sum for pin in versions.load().pins.modules if pin.version == K8S)
    BuildSource(K8S).obtain(Program("kubelet", "v1.36.9", "windows"), Quiet())
    assert compiler.runs[-1][0].sum == ""


def test_only_a_pinned_sum_verifies_what_the_host_runs(tmp_path: Path) -> None:
    sums, kubectl = versions.load().pins.module_sums, Program("kubectl", K8S, "linux")
    (tmp_path / "go.mod").write_text("module k8s.io/kubernetes\n")
    assert BuildSource(K8S, sums=sums).pinned(kubectl)
    assert BuildSource(K8S, sums=sums).pinned(Program("ctr", "2.3.7", "linux"))
    assert not BuildSource(K8S, sums=sums).pinned(Program("kubectl", "v1.36.9", "linux"))
    assert not BuildSource(K8S, {"k8s.io/kubernetes": tmp_path}, sums=sums).pinned(kubectl)
    assert not BuildSource(K8S, sums=sums).pinned(Program("doom", "1", "linux"))


def source(kubernetes: Path | None = None) -> BuildSource:
    return BuildSource(K8S, {"k8s.io/kubernetes": kubernetes} if kubernetes else None)


@pytest.mark.parametrize(
    ("artifact", "reason"),
    [
        (Program("crictl", "1.36.0", "linux"), "not available where winlab was developed"),
        (Program("containerd-shim-runhcs-v1", "2.3.7", "windows"), "not available where winlab was developed"),
        (Program("flannel", "v1.8", "linux"), "not available where winlab was developed"),
        (Program("runc", "1.4.3", "windows"), "built for linux only"),
        (Program("win-bridge", "1.9.1", "linux"), "built for windows only"),
        (Program("doom", "1", "linux"), "does not know how to build 'doom'"),
        (ContainerImage(PAUSE.reference, "windows"), "only its vendor's registry"),
        (ContainerImage("quay.io/calico/node:v3.32.1", "linux"), "does not know how to build that image"),
        (ContainerImage("registry.k8s.io/kube-proxy@sha256:1", "linux"), "does not know how to build that image"),
        (Manifest("calico", "v3.32.1", "x.yaml"), "published, not built"),
    ],
)
def test_impossible_builds_are_reported_in_advance(artifact: Artifact, reason: str, compiler: Compiler) -> None:
    assert reason in source().cannot([KUBELET, artifact, PAUSE])[artifact]
    with pytest.raises(NotFoundError, match="can't be built") as refused:
        source().obtain_all([KUBELET, artifact], Quiet())
    assert str(artifact) in str(refused.value)
    assert reason in refused.value.why
    assert compiler.runs == []


def test_builds_are_checked_only_for_missing_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def check(module: GoModule) -> None:
        asked.append(module.path)
        raise HostError("There is no Go.", cure="Install it.")

    monkeypatch.setattr(build, "check_published", check)
    monkeypatch.setattr(build.run, "find", lambda name: f"/usr/bin/{name}")
    assert source().unready([KUBELET, KUBEADM, PROXY]) == "There is no Go. Install it."
    assert asked == ["k8s.io/kubernetes"]
    source().obtain_all([KUBELET, PROXY], Quiet())
    assert source().unready([KUBELET, PROXY]) is None
    monkeypatch.setattr(build.run, "find", lambda name: None)
    assert source().unready([KUBELET, PROXY]) is None
    agnhost = ContainerImage("registry.k8s.io/e2e-test-images/agnhost:2.62", "linux")
    assert "mmdebstrap is not installed" in str(source().unready([agnhost]))


def test_everything_a_lab_needs_can_be_built() -> None:
    linux = "kubeadm kubelet kubectl kube-proxy kube-apiserver kube-controller-manager kube-scheduler kube-log-runner "
    linux += "containerd ctr containerd-shim-runc-v2 runc bridge host-local loopback portmap etcd coredns agnhost"
    windows = (
        "kubeadm kubelet kubectl kube-proxy kube-log-runner containerd ctr win-bridge win-overlay host-local agnhost"
    )
    images = f"kube-apiserver:{K8S} kube-controller-manager:{K8S} kube-scheduler:{K8S} kube-proxy:{K8S} etcd:3.6.16-0 "
    images += "coredns/coredns:v1.14.7 pause:3.10.2 e2e-test-images/agnhost:2.62"
    wanted: list[Artifact] = [Program(name, "1", "linux") for name in linux.split()]
    wanted += [Program(name, "1", "windows") for name in windows.split()]
    wanted += [ContainerImage(f"registry.k8s.io/{name}", "linux") for name in images.split()]
    assert source().cannot(wanted) == {}


def test_the_programs_of_a_module_are_compiled_together_and_once(compiler: Compiler) -> None:
    plugin = Program("bridge", "1.9.1", "linux")
    found = source().obtain_all([KUBELET, plugin, KUBEADM], Quiet())
    assert [one.artifact for one in found] == [KUBELET, plugin, KUBEADM]
    assert [(module.path, module.version, target.os, len(target.packages)) for module, target in compiler.runs] == [
        ("k8s.io/kubernetes", "v1.36.3", "windows", 2),
        ("github.com/containernetworking/plugins", "v1.9.1", "linux", 1),
    ]
    assert found[0].path.name == "kubelet.exe"
    assert found[0].origin == "built from k8s.io/kubernetes v1.36.3 with go1.26.8"
    assert source().obtain(KUBELET, Quiet()) == found[0]
    assert len(compiler.runs) == 2


def test_another_spelling_of_a_release_is_the_same_release(compiler: Compiler) -> None:
    first = source().obtain(Program("etcd", "3.6.16-0", "linux"), Quiet())
    second = source().obtain(Program("etcd", "v3.6.16", "linux"), Quiet())
    assert first.path == second.path
    assert second.artifact == Program("etcd", "v3.6.16", "linux")
    assert [module.version for module, _ in compiler.runs] == ["v3.6.16"]


@pytest.mark.parametrize("other", [Program("kubelet", "v1.36.2", "windows"), Program("kubelet", K8S, "linux")])
def test_another_release_or_system_is_compiled_again(compiler: Compiler, other: Program) -> None:
    source().obtain(KUBELET, Quiet())
    source().obtain(other, Quiet())
    assert len(compiler.runs) == 2


def test_another_go_compiles_again(compiler: Compiler) -> None:
    source().obtain(KUBELET, Quiet())
    compiler.go = Go(Path("/go"), "go1.27.0")
    source().obtain(KUBELET, Quiet())
    assert len(compiler.runs) == 2


def test_a_checkout_is_compiled_at_every_call(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module k8s.io/kubernetes\n")
    first = source(kubernetes=tmp_path).obtain(KUBELET, Quiet())
    second = source(kubernetes=tmp_path).obtain(KUBELET, Quiet())
    assert len(compiler.runs) == 2
    assert compiler.runs[0][0].source == tmp_path
    assert first.path != second.path  # the bytes differ
    assert source().obtain(KUBELET, Quiet()).path not in (first.path, second.path)
    assert str(tmp_path) in first.origin


def test_a_checkout_of_another_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a checkout of"):
        BuildSource(K8S, {"k8s.io/kubernetes": tmp_path})
    with pytest.raises(UsageError, match=r"Nothing is built from a module 'x\.org/y'"):
        BuildSource(K8S, {"x.org/y": tmp_path})


def test_a_missing_c_compiler_is_reported_before_anything_is_built(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(tags: tuple[str, ...]) -> None:
        raise HostError("no gcc")

    monkeypatch.setattr(build, "check_c", missing)
    with pytest.raises(HostError, match="no gcc"):
        source().obtain_all([KUBELET, Program("runc", "1.4.3", "linux")], Quiet())
    assert compiler.runs == []


def test_kubernetes_knows_its_version(compiler: Compiler) -> None:
    source().obtain(KUBEADM, Quiet())
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert compiler.stamps[f"{package}.gitVersion"] == "v1.36.3"
        assert compiler.stamps[f"{package}.gitMajor"] == "1"
        assert compiler.stamps[f"{package}.gitMinor"] == "36"
        assert compiler.stamps[f"{package}.buildDate"] == "2026-07-22T18:07:38Z"


def test_containerd_knows_its_version(compiler: Compiler) -> None:
    source().obtain(Program("containerd", "2.3.7", "windows"), Quiet())
    assert compiler.stamps["github.com/containerd/containerd/v2/version.Version"] == "v2.3.7"


def layer(path: Path) -> dict[str, Any]:
    """What an image has: its configuration, and its files by name (links as strings)."""
    (found,) = oci.inspect(path)
    with tarfile.open(path) as archive:

        def blob(digest: str) -> bytes:
            file = archive.extractfile("blobs/sha256/" + digest[7:])
            assert file is not None
            return file.read()

        files: dict[str, Any] = {"config": json.loads(blob(found.config.digest))["config"]}
        with tarfile.open(fileobj=io.BytesIO(blob(found.layers[0].digest))) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() else None
                files[member.name] = file.read() if file else member.linkname
    return files


def test_the_image_of_kube_proxy(compiler: Compiler) -> None:
    made = source().obtain(PROXY, Quiet())
    oci.verify(made.path, PROXY)
    files = layer(made.path)
    assert files["usr/local/bin/kube-proxy"].startswith(b"k8s.io/kubernetes/cmd/kube-proxy v1.36.3 linux")
    assert files["go-runner"].startswith(b"k8s.io/component-base/logs/kube-log-runner")
    assert files["config"]["Entrypoint"] == ["/go-runner"]
    assert files["usr/sbin/iptables-restore"] == "xtables-nft-multi"
    assert files["usr/bin/nftables"] == b"deb"
    assert len(compiler.runs) == 1


@pytest.mark.parametrize(
    ("name", "module", "version", "path", "entrypoint"),
    [
        (f"kube-scheduler:{K8S}", "k8s.io/kubernetes", K8S, "usr/local/bin/kube-scheduler", ["/go-runner"]),
        ("etcd:3.6.16-0", "go.etcd.io/etcd/server/v3", "v3.6.16", "usr/local/bin/etcd", None),
        ("coredns/coredns:v1.14.7", "github.com/coredns/coredns", "v1.14.7", "coredns", ["/coredns"]),
        ("e2e-test-images/agnhost:2.62", "k8s.io/kubernetes", K8S, "agnhost", ["/agnhost"]),
    ],
)
def test_images_are_of_the_right_release(
    compiler: Compiler, name: str, module: str, version: str, path: str, entrypoint: list[str] | None
) -> None:
    files = layer(source().obtain(ContainerImage(f"registry.k8s.io/{name}", "linux"), Quiet()).path)
    assert version.encode() in files[path]
    assert files["config"].get("Entrypoint") == entrypoint
    assert [(one.path, one.version) for one, _ in compiler.runs] == [(module, version)]


def test_agnhost_has_a_shell(compiler: Compiler) -> None:
    image = ContainerImage("registry.k8s.io/e2e-test-images/agnhost:2.62", "linux")
    files = layer(source().obtain(image, Quiet()).path)
    assert files["usr/bin/sh"] == "busybox"
    assert files["agnhost-2"] == "agnhost"
    assert files["config"]["Cmd"] == ["pause"]


def test_pause_is_winlabs_own(compiler: Compiler) -> None:
    files = layer(source().obtain(PAUSE, Quiet()).path)
    assert b"winlab.invalid/pause" in files["pause"]
    assert files["config"]["User"] == "65535:65535"
    assert compiler.runs[0][0].source == go_programs.OWN / "pause"
    assert source().obtain(PAUSE, Quiet()).origin.startswith("built from winlab's own pause with go")
    assert len(compiler.runs) == 1  # the cache knows the sources by their contents


def test_images_are_taken_from_the_cache(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source().obtain(PROXY, Quiet())
    monkeypatch.setattr(build_images, "make", lambda *_: pytest.fail("made again"))
    assert source().obtain_all([PROXY, KUBELET], Quiet())[0] == first
    assert len(compiler.runs) == 2  # the second for kubelet.exe


def test_an_image_of_a_changed_program_is_rebuilt(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module k8s.io/kubernetes\n")
    first = source().obtain(PROXY, Quiet())
    assert source(kubernetes=tmp_path).obtain(PROXY, Quiet()).path != first.path


def test_every_program_of_a_part_has_a_file_of_its_own() -> None:
    for part in go_programs.PARTS:
        for packages in part.packages.values():
            assert len({program(package) for package in packages.values()}) == len(packages)


@pytest.mark.parametrize(
    ("version", "tag"),
    [("2.3.7", "v2.3.7"), ("v1.36.3", "v1.36.3"), ("3.6.16-0", "v3.6.16"), ("v1.37.0-rc.1", "v1.37.0-rc.1")],
)
def test_tags_of_releases(version: str, tag: str) -> None:
    assert go_programs.tag(version) == tag


def test_of_debian_packages_programs_and_libraries_are_taken() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in (
            *("./usr/sbin/nft", "./lib64/ld.so", "./usr/share/man/man8/nft.8.gz", "./etc/passwd", "./dev/x"),
            *("./usr/lib/x86_64-linux-gnu/gconv/X.so", "./usr/lib/x86_64-linux-gnu/xtables/libxt_x.so"),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = 1, 0o4755
            tar.addfile(info, io.BytesIO(b"x"))
        info = tarfile.TarInfo("./usr/sbin/iptables-nft")
        info.type, info.linkname = tarfile.SYMTYPE, "xtables-nft-multi"
        tar.addfile(info)
    content.seek(0)
    with tarfile.open(fileobj=content) as tar:
        files = {file.path: file for file in debs.pick(tar)}
    assert {path for path, file in files.items() if not file.link} == {
        "/usr/sbin/nft",
        "/usr/lib64/ld.so",
        "/usr/lib/x86_64-linux-gnu/xtables/libxt_x.so",
    }
    assert files["/usr/sbin/nft"].mode == 0o755
    assert files["/usr/sbin/iptables-nft"].link == "xtables-nft-multi"
    assert files["/lib64"].link == "usr/lib64"


def test_nothing_is_left_in_the_work_folder(compiler: Compiler) -> None:
    source().obtain_all([PROXY, KUBELET], Quiet())
    assert list((store.tools().parent / "staging").iterdir()) == []
