"""The builds of Windows that an image is for: by containerd's rule, from the archive that nodes get."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import plans
import pytest

from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program
from winlab.design.system.windows import runs_image
from winlab.supply.artifacts.oci import archive, builds, layout

H2019, H2022, H2025 = "10.0.17763", "10.0.20348", "10.0.26100"
IMAGE = ContainerImage("registry.k8s.io/e2e-test-images/agnhost:2.63.0", "windows")


@pytest.mark.parametrize(
    ("version", "hosts"),
    [
        ("", {H2019, H2022, H2025}),  # HostProcess
        ("10.0.17763.7000", {H2019}),
        ("10.0.17762.1", set()),
        ("10.0.20348.4171", {H2022, H2025}),
        ("10.0.25398.1", {H2025}),
        ("10.0.26100.1", {H2025}),
        ("10.0.27000.1", set()),
        ("odd", {H2019, H2022, H2025}),
    ],
)
def test_which_windows_runs_an_image(version: str, hosts: set[str]) -> None:
    assert {host for host in (H2019, H2022, H2025) if runs_image(host, version)} == hosts


def made(folder: Path, versions: list[str], *, of_config: bool = False) -> Path:
    """An archive as winlab's pull writes it, with an image for each version of Windows."""
    folder.mkdir()
    blobs = layout.Blobs(folder)

    def add(document: dict[str, Any], kind: str) -> dict[str, Any]:
        content = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blobs.add(digest, content)
        return blobs.descriptor(digest, kind)

    entries = []
    for number, version in enumerate(versions):
        about = {"os": "windows", "architecture": "amd64", "n": number, "rootfs": {"diff_ids": []}}
        config = add({**about, **({"os.version": version} if of_config else {})}, archive.CONFIG)
        manifest = add({"mediaType": layout.MANIFEST, "config": config, "layers": []}, layout.MANIFEST)
        named = {} if of_config or not version else {"os.version": version}
        entries.append({**manifest, "platform": {"os": "windows", "architecture": "amd64", **named}})
    root = entries[0] if len(entries) == 1 else blobs.add_index(entries)
    path = folder / "image.tar"
    layout.write(path, blobs, root, IMAGE.reference)
    return path


def obtained(artifact: Artifact, path: Path) -> Obtained:
    return Obtained(artifact, path, "0" * 64, 1, "upstream")


@pytest.mark.parametrize("of_config", [False, True])
def test_the_versions_in_an_archive(tmp_path: Path, of_config: bool) -> None:
    """Pulls keep them in the index; mirrors and converters may leave them to the configuration."""
    many = made(tmp_path / "a", ["10.0.20348.1", "10.0.26100.2"], of_config=of_config)
    assert builds.of(many) == ["10.0.20348.1", "10.0.26100.2"]
    assert builds.of(made(tmp_path / "b", ["10.0.17763.3"], of_config=of_config)) == ["10.0.17763.3"]
    assert builds.of(made(tmp_path / "c", [""])) == [""]
    (tmp_path / "odd").write_bytes(b"no archive")
    assert builds.of(tmp_path / "odd") == [""]


def test_a_release_without_an_image_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "a", ["10.0.20348.1", "10.0.26100.2"])
    items = [obtained(IMAGE, path), obtained(Program("kubelet", "v1", "windows"), path)]
    for name, said in (("2019", True), ("2022", False), ("2025", False)):
        plan = plans.make(plans.KVM, "1-1-1", f"workers.os=windows-{name}", "network.cni=l3")
        found = builds.unfit(plan, items)
        assert bool(found) is said, name
        if said:
            assert f"{IMAGE.reference} has no image for Windows Server 2019 (10.0.17763)" in found[0]
            assert found[0].endswith("It has images for 10.0.20348.1, 10.0.26100.2.")
    linux = obtained(ContainerImage("registry.k8s.io/pause:3.10.2", "linux"), path)
    assert builds.unfit(plans.make(plans.KVM, "1-1-1", "workers.os=windows-2019", "network.cni=l3"), [linux]) == []
