"""The payload CD has exactly what was obtained: nodes compare programs with a CRC-32 only."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program
from winlab.errors import TransferError
from winlab.events import Quiet
from winlab.supply.artifacts import preload, store
from winlab.supply.media import small_iso
from winlab.supply.payload import PayloadCd

KUBELET = Program("kubelet", "v1.36.3", "linux")
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")


def cached(artifact: Artifact, folder: Path) -> Obtained:
    file = folder / "new"
    file.write_bytes(b"good bytes")
    return store.keep(store.key({"x": str(artifact)}), artifact, file, "test", move=True)


def rot(item: Obtained) -> None:
    """One bit; size, name and manifest stay."""
    item.path.chmod(0o644)
    item.path.write_bytes(b"gooe bytes")


def test_a_program_that_has_changed_in_the_cache_goes_to_no_node(tmp_path: Path) -> None:
    kubelet = cached(KUBELET, tmp_path)
    PayloadCd("linux", [kubelet], [])
    rot(kubelet)
    assert store.lookup(store.key({"x": str(KUBELET)})) == kubelet  # its size is complete
    with pytest.raises(TransferError, match="has changed since it was obtained") as caught:
        PayloadCd("linux", [kubelet], [])
    assert str(KUBELET) in caught.value.what
    assert hashlib.sha256(b"gooe bytes").hexdigest() in caught.value.why
    assert caught.value.evidence == str(kubelet.path)


def test_a_container_image_that_has_changed_in_the_cache_goes_to_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(small_iso, "write", lambda path, *_: written.append(path))
    pause = cached(PAUSE, tmp_path)
    planned = PayloadCd("linux", [pause], [])
    planned.write(tmp_path / "cd.iso")
    rot(pause)
    with pytest.raises(TransferError, match="pause"):
        planned.write(tmp_path / "cd.iso")
    assert len(written) == 1


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_changed_programs_are_not_run_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    items = [
        cached(one, tmp_path) for one in (Program("containerd", "1", "linux"), Program("ctr", "1", "linux"), PAUSE)
    ]
    rot(items[bad])
    monkeypatch.setattr(preload, "stream", lambda *_: pytest.fail("it was run"))
    with pytest.raises(TransferError):
        preload.make([items[2]], items[0], items[1], tmp_path / "disk", tmp_path, Quiet())
