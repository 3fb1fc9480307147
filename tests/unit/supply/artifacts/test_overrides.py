"""Programs of the user in place of a source's: in the cache, in an image, and how they are identified."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.errors import UsageError
from winlab.events import Progress, Quiet
from winlab.supply.artifacts import overrides, store
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import write
from winlab.supply.artifacts.oci.write import Config, LayerFile
from winlab.supply.artifacts.overrides import OverriddenSource

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little") + b"kubelet"
PE = b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0\x64\x86" + bytes(100)
KUBELET, KUBELET_EXE = Program("kubelet", "v1", "linux"), Program("kubelet", "v1", "windows")
KUBEADM, CRICTL = Program("kubeadm", "v1", "linux"), Program("crictl", "1", "linux")
PROXY, PROXY_EXE = ContainerImage("registry.k8s.io/kube-proxy:v1", "linux"), Program("kube-proxy", "v1", "windows")
EVERY = (KUBEADM, KUBELET, KUBELET_EXE, PROXY, PROXY_EXE)


class Origin:
    """The source underneath: images are real archives."""

    name = "build"

    def __init__(self, folder: Path, *never: Artifact) -> None:
        self.folder = folder
        self.never = never

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        return {artifact: "no module has it" for artifact in wanted if artifact in self.never}

    def pinned(self, program: Program) -> bool:
        return program == KUBEADM

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        path = self.folder / "image.tar"
        if isinstance(artifact, ContainerImage) and not path.exists():
            (self.folder / "work").mkdir()
            items = [LayerFile("/usr/local/bin/kube-proxy", b"published"), LayerFile("/usr/sbin/nft", b"nft")]
            write.write(path, artifact.reference, items, Config(entrypoint=("/x",)), work=self.folder / "work")
        return Obtained(artifact, path, "0" * 64, 1, "built")

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        return [self.obtain(artifact, progress) for artifact in artifacts]


def program(path: Path, content: bytes = ELF) -> Path:
    path.write_bytes(content)
    return path


def test_own_builds_take_the_place_of_the_sources(tmp_path: Path) -> None:
    mine = program(tmp_path / "my-kubelet")
    source = OverriddenSource(Origin(tmp_path, KUBELET, CRICTL), {KUBELET: mine})
    assert source.name == "build"
    assert list(source.cannot([KUBELET, KUBEADM, CRICTL])) == [CRICTL]
    assert [source.pinned(one) for one in (KUBELET, KUBEADM, CRICTL)] == [True, True, False]
    got = source.obtain_all([KUBEADM, KUBELET, Manifest("p", "v", "m")], Quiet())
    assert [one.origin for one in got] == ["built", f"your own build '{mine}'", "built"]
    assert got[1].path.read_bytes() == ELF
    assert got[1].path.name == "kubelet"
    mine.write_bytes(ELF + b"!")  # built again
    again = source.obtain(KUBELET, Quiet())
    assert again.path.read_bytes() == ELF + b"!"
    assert again.sha256 != got[1].sha256
    assert len(store.entries()) == 2


def test_a_program_in_an_image_replaces_the_image_s_own(tmp_path: Path) -> None:
    """Linux' kube-proxy: the rest of the source's image stays as it is."""
    mine = program(tmp_path / "kube-proxy", ELF + b"mine")
    source = OverriddenSource(Origin(tmp_path), {PROXY: mine})
    made = source.obtain(PROXY, Quiet())
    assert made.origin == f"built, with your own build '{mine}'"
    assert source.obtain(PROXY, Quiet()).path == made.path
    (found,) = oci.inspect(made.path)
    assert found.references == (PROXY.reference,)
    oci.verify(made.path, PROXY)
    with tarfile.open(made.path) as archive:

        def read(digest: str) -> bytes:
            file = archive.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert file is not None
            return file.read()

        manifest = json.loads(found.manifest)
        first, last = (row["digest"] for row in manifest["layers"])
        config = json.loads(read(manifest["config"]["digest"]))
        (tmp_path / "last").write_bytes(read(last))
    assert config["rootfs"]["diff_ids"] == [first, last]
    assert config["config"]["Entrypoint"] == ["/x"]
    with tarfile.open(tmp_path / "last") as layer:
        member = layer.getmember("usr/local/bin/kube-proxy")
        file = layer.extractfile(member)
        assert member.mode == 0o755
        assert file is not None
        assert file.read() == ELF + b"mine"


def test_a_program_does_not_replace_a_missing_image(tmp_path: Path) -> None:
    source = OverriddenSource(Origin(tmp_path, PROXY), {PROXY: program(tmp_path / "p")})
    assert list(source.cannot([PROXY])) == [PROXY]


@pytest.mark.parametrize(
    ("name", "content", "replaced"),
    [
        ("kubelet", ELF, KUBELET),
        ("kubelet", PE, KUBELET_EXE),
        ("kube-proxy", ELF, PROXY),
        ("kube-proxy", PE, PROXY_EXE),
    ],
)
def test_the_flag_and_the_file_identify_the_program(
    tmp_path: Path, name: str, content: bytes, replaced: Artifact
) -> None:
    assert overrides.meant(name, program(tmp_path / "patched-build-17", content), EVERY) == replaced


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("kubelet", b"#!/bin/sh", "a script"),
        ("kubelet", None, "No such file"),
        ("kubelet", ELF[:18] + b"\xb7\0" + ELF[20:], "arm64"),
        ("kubeadm", PE, "the lab has no kubeadm for that system"),
    ],
)
def test_invalid_overrides_are_refused(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / "mine"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        overrides.meant(name, path, EVERY)
    assert says in f"{caught.value.what} {caught.value.why}"


def test_a_file_that_has_become_something_else_is_refused(tmp_path: Path) -> None:
    mine = program(tmp_path / "kubelet")
    source = OverriddenSource(Origin(tmp_path), {KUBELET: mine})
    mine.write_bytes(PE)
    with pytest.raises(UsageError, match=r"can't be used as kubelet v1 \(linux\)") as caught:
        source.obtain(KUBELET, Quiet())
    assert "a Windows program" in caught.value.why
