"""Archives that others packed: images, bundles, container images, published archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import disks
import mutation
from fuzzing import parser

from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import ContainerImage, Manifest, Obtained, Program
from winlab.events import Quiet
from winlab.run import Result
from winlab.supply import disk_format
from winlab.supply.artifacts import executable, unpack
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.artifacts.bundle.format import OwnMediaRow
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import write as oci_write
from winlab.supply.images import apt, cache, golden, imported

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little") + b"kubelet" * 20
PE = b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0\x64\x86" + bytes(100)
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")
KUBELET = Program("kubelet", "v1.36.3", "linux")
OPERATOR = Manifest("calico", "v3.32.1", "tigera-operator.yaml")
DISK = disks.qcow2(b"disk" * 200)
TOLD = '{"format": "qcow2", "virtual-size": 1048576, "format-specific": {"type": "qcow2", "data": {"compat": "1.1"}}}'


def answer(told: str = TOLD) -> None:
    """Let qemu-img say this: no program is started here."""
    disk_format.run = lambda args, **_: Result(tuple(map(str, args)), 0, told, "", 0.0)  # type: ignore[assignment]


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def tar(members: dict[str, bytes], how: int = tarfile.PAX_FORMAT) -> bytes:
    rows = []
    for name, content in members.items():
        row = tarfile.TarInfo(name)
        row.size = len(content)
        rows.append((row, content))
    return mutation.packed(rows, how)


def container() -> bytes:
    """A container image by winlab's own writer."""
    with tempfile.TemporaryDirectory() as name:
        target, work = Path(name) / "image.tar", Path(name) / "work"
        work.mkdir()
        layer = oci_write.LayerFile("/usr/bin/x", b"x" * 50)
        oci_write.write(target, PAUSE.reference, [layer], oci_write.Config(cmd=("x",)), work=work)
        return target.read_bytes()


def saved() -> bytes:
    """A container image as 'docker save' writes it."""
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["sha256:" + "1" * 64]}}
    row = {"Config": "c.json", "RepoTags": ["pause:3"], "Layers": ["l/layer.tar"]}
    return tar(
        {"c.json": json.dumps(config).encode(), "l/layer.tar": b"layer", "manifest.json": json.dumps([row]).encode()}
    )


def exported(name: str, content: bytes) -> bytes:
    """An image as 'image export' writes it."""
    recipe = recipes.get(name)
    manifest = {
        "file": f"image.{recipe.format}",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "origin": "https://publisher.example",
        "made": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "recipe": recipe.model_dump(mode="json"),
        "key": cache.key(recipe),
        "packages": {"apt": "3.0.3"},
    }
    return tar({"manifest.json": json.dumps(manifest).encode(), f"image.{recipe.format}": content})


def golden_image() -> bytes:
    rows = dict(tarfile_rows(exported("debian-13", DISK)))
    manifest = json.loads(rows["manifest.json"])
    recipe = recipes.get("windows-rehearsal")
    facts = {
        "key": "0" * 16,
        "build": "20348.1",
        "programs": "x",
        "inputs": {"windows": {"edition": "x"}},
        "medium": None,
        "evaluation_ends": "2027-01-01T00:00:00+00:00",
    }
    facts["key"] = imported._golden_key(imported._GoldenFacts.model_validate(facts))
    manifest |= {
        "recipe": {**recipe.model_dump(mode="json"), "format": "qcow2"},
        "golden": facts,
        "packages": {},
        "key": golden.cache_key(str(facts["key"])),
    }
    return tar({"manifest.json": json.dumps(manifest).encode(), "image.qcow2": DISK})


def tarfile_rows(content: bytes) -> list[tuple[str, bytes]]:
    return [(member.name, text) for member, text in mutation.unpacked(content)]


@parser("image-import", lambda: [exported("debian-13", DISK), golden_image()], mutation.TAR)
def image_import(content: bytes, folder: Path) -> None:
    answer()
    imported.bring(write(folder, "image.tar", content), Quiet())


@parser("qcow2-header", lambda: [DISK, disks.qcow2(version=2), b"\0" * 512], mutation.BYTES)
def qcow2_header(content: bytes, folder: Path) -> None:
    answer()
    path = write(folder, "disk", content)
    disk_format.check(path, "raw" if content[:1] == b"\0" else "qcow2", str(path))


@parser("qemu-img-answer", lambda: [TOLD.encode()], mutation.JSON)
def qemu_answer(content: bytes, folder: Path) -> None:
    answer(content.decode(errors="replace"))
    disk_format.check(write(folder, "disk", DISK), "qcow2", "disk")


def bundles() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {KUBELET: ELF, PAUSE: container(), OPERATOR: b"kind: x\n"}
        members = [
            Obtained(
                what, write(folder, f"f{n}", text), hashlib.sha256(text).hexdigest(), len(text), "https://p.example"
            )
            for n, (what, text) in enumerate(files.items())
        ]
        own = OwnMediaRow(name="windows.iso", sha256="9" * 64, size=5)
        bundle.write(folder / "b.tar", [*members, own], {"versions": {"kubernetes": "v1.36.3"}}, Quiet())
        return [(folder / "b.tar").read_bytes()]


@parser("bundle", bundles, mutation.TAR)
def bundle_file(content: bytes, folder: Path) -> None:
    path = write(folder, "b.tar", content)
    made = bundle.verify(path, Quiet())
    source = BundleSource(path)
    for row in made.contents.artifacts:
        source.obtain(row.artifact, Quiet())


@parser("container-image", lambda: [container(), saved(), gzip.compress(container(), 1)], mutation.OCI)
def container_image(content: bytes, folder: Path) -> None:
    path = write(folder, "image.tar", content)
    oci.inspect(path)
    (folder / "work").mkdir()
    made = oci.convert(path, folder / "made.tar", "linux", work=folder / "work")
    oci.verify(folder / "made.tar", made)


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bin/x", b"x" * 500)
        archive.writestr("bin/y", b"y")
    return target.getvalue()


@parser(
    "tar-archive",
    lambda: [
        tar({"./bin/x": b"x" * 50, "bin/y": b""}),
        tar({"bin/x": b"x"}, tarfile.GNU_FORMAT),
        gzip.compress(tar({"bin/x": b"x" * 500}), 1),
    ],
    mutation.TAR,
)
def tar_archive(content: bytes, folder: Path) -> None:
    unpack.members(write(folder, "a.tar.gz", content), {"bin/x": folder / "x", "bin/y": folder / "y"})


@parser("zip-archive", lambda: [zipped()], mutation.BYTES)
def zip_archive(content: bytes, folder: Path) -> None:
    unpack.members(write(folder, "a.zip", content), {"bin/x": folder / "x", "bin/y": folder / "y"})


@parser("program", lambda: [ELF, PE, b"#!/bin/sh\n"], mutation.BYTES, 0.3)
def program(content: bytes, folder: Path) -> None:
    executable.describe(write(folder, "x", content))


@parser(
    "dpkg-status",
    lambda: [tar({"./var/lib/dpkg/status": b"Package: apt\nStatus: install ok installed\nVersion: 3\n\n"})],
    mutation.TAR,
    0.5,
)
def dpkg_status(content: bytes, folder: Path) -> None:
    apt.installed(write(folder, "root.tar", content))
