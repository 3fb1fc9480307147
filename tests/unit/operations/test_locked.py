"""``create --locked``: what a lab has, and what the source gives now, against the lock file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import clones
import plans
import pytest
import runs
import sites

from winlab import files
from winlab.adapters.vm import devices
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.catalog.artifact import Artifact, Obtained, Program
from winlab.engine.run import Run, Sources
from winlab.engine.step import Step
from winlab.errors import ConflictError, TransferError
from winlab.events import Quiet
from winlab.steps import golden, images
from winlab.steps import payload as supply
from winlab.steps.linux.system import LinuxSteps
from winlab.steps.sources import Supply
from winlab.supply.payload import PayloadCd

IN_DRIVE: dict[str, str] = {}  # domain -> payload


class Pool:
    def is_complete(self, name: str) -> bool:
        return True


class Source:
    """Gives every artifact, always the same."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
        return [Obtained(artifact, self.file, files.sha256(self.file), 1, "upstream") for artifact in artifacts]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A lab that has everything."""
    IN_DRIVE.clear()
    monkeypatch.setattr(devices, "medium", lambda _conn, one, _drive: Path(IN_DRIVE[one.domain]))
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    kubectl = tmp_path / "kubectl"
    kubectl.touch()
    folder = cast(Any, type("Folder", (), {"lab": "lab", "kubectl": kubectl, "make": lambda self: None})())
    return runs.run(plan, folder=folder, pool=Pool())


def step(run: Run, source: Supply) -> Step:
    return runs.titled(supply.steps(run, source), "payload windows")


def have(run: Run, source: Supply) -> None:
    """The node has the payload that the source gives now."""
    payload = next(one for one in supply.required.payloads(run.plan) if one.os == "windows")
    made = PayloadCd("windows", source.obtain(list(payload.artifacts), Quiet()), payload.plugins)
    IN_DRIVE[run.plan.node("node-1").domain] = made.volume


def of(pool: object) -> Hypervisors:
    return Hypervisors((sites.hypervisor(pool=pool),))


def test_without_a_lock_present_files_are_not_obtained_again(there: Run, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    source = Supply(cast(Any, Source(tmp_path / "x")))
    have(there, source)
    assert step(there, source).done()


def test_a_finished_lab_is_compared_too(there: Run, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    source = Supply(cast(Any, Source(tmp_path / "x")))
    have(there, source)
    seen: list[list[str]] = []
    seen_by = lambda items: seen.append([i.artifact.file for i in items if isinstance(i.artifact, Program)])  # noqa: E731
    source = replace(source, check=seen_by)
    assert not step(there, source).done()
    step(there, source).run(Quiet())
    assert "kubelet.exe" in seen[0]


def test_an_image_is_compared_when_it_has_come(there: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of a built image are known only then."""

    def check() -> None:
        raise ConflictError("apt has drifted.")

    class Empty:
        def is_complete(self, name: str) -> bool:
            return False

    monkeypatch.setattr(LinuxSteps, "image", lambda *_: Path("/image"))
    run = replace(there, sources=Sources(check_images=check), hypervisors=of(Empty()))
    debian = runs.titled(images.steps(run), "image debian-13")
    with pytest.raises(ConflictError, match="drifted"):
        debian.run(Quiet())


def test_the_base_volume_is_compared_with_the_image(there: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name does not depend on the packages in it."""
    same = [True]

    class Full:
        def is_complete(self, name: str) -> bool:
            return True

        def holds(self, name: str, path: Path) -> bool:
            assert path == Path("/image")
            return same[0]

        def upload_base(self, *_: object) -> None:
            pass

    monkeypatch.setattr(LinuxSteps, "image", lambda *_: Path("/image"))
    run = replace(there, sources=Sources(check_images=lambda: None), hypervisors=of(Full()))
    debian = runs.titled(images.steps(run), "image debian-13")
    assert not debian.done()
    debian.run(Quiet())
    same[0] = False
    with pytest.raises(ConflictError, match="is not the image that is locked"):
        debian.run(Quiet())


def test_drift_stops_create(there: Run, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    source = Supply(cast(Any, Source(tmp_path / "x")))
    have(there, source)

    def check(items: list[Obtained]) -> None:
        raise ConflictError("kubelet.exe has drifted.")

    source = replace(source, check=check)
    with pytest.raises(ConflictError, match="drifted"):
        step(there, source).run(Quiet())


def test_a_lab_of_other_programs_is_refused(there: Run, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    source = Supply(cast(Any, Source(tmp_path / "x")), check=lambda items: None)
    IN_DRIVE[there.plan.node("node-1").domain] = "base-kubernetes-windows-0000000000000000.iso"
    with pytest.raises(ConflictError, match=r"other programs than those locked: node-1\."):
        step(there, source).run(Quiet())


def test_a_program_of_the_user_is_noticed_in_a_finished_lab(there: Run, tmp_path: Path) -> None:
    """Otherwise 'create --kubelet MINE' would say that everything is done, with the old kubelet."""
    (tmp_path / "x").touch()
    source = Supply(cast(Any, Source(tmp_path / "x")), own=True)
    have(there, source)
    assert not step(there, source).done()
    step(there, source).run(Quiet())
    IN_DRIVE[there.plan.node("node-1").domain] = "base-kubernetes-windows-0000000000000000.iso"
    with pytest.raises(ConflictError, match=r"other programs than those given now: node-1\.") as caught:
        step(there, source).run(Quiet())
    assert "winlab push" in caught.value.cure


def test_a_lab_is_complete_when_every_node_has_its_payload(there: Run, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    have(there, Supply(cast(Any, Source(tmp_path / "x"))))
    IN_DRIVE[there.plan.node("controller-1").domain] = "base-kubernetes-linux-0000000000000000.iso"
    assert supply.has_all(there)
    IN_DRIVE[there.plan.node("controller-1").domain] = "seed.iso"
    assert not supply.has_all(there)


def test_a_golden_image_in_the_pool_is_compared_too() -> None:
    """Labs clone what is in the pool, which may be from another image with the same key."""
    plan = clones.make(clones.REHEARSAL)
    made = clones.keep(plan)
    checked: list[str] = []
    same = [True]

    class Full:
        def is_complete(self, name: str) -> bool:
            return True

        def holds(self, name: str, path: Path) -> bool:
            assert path == made.path
            return same[0]

        def upload_base(self, *_: object) -> None:
            pass

    run = runs.run(plan, pool=Full(), sources=Sources(check_images=lambda: checked.append("lock")))
    step = golden.upload_step(run, "base-x-golden-0.qcow2", made.key, run.on(plan.nodes[0]))
    assert not step.done()
    step.run(Quiet())
    assert checked == ["lock"]
    same[0] = False
    with pytest.raises(ConflictError, match="is not the image that is locked"):
        step.run(Quiet())
    run = runs.run(plan, pool=Full())
    assert golden.upload_step(run, "base-x-golden-0.qcow2", made.key, run.on(plan.nodes[0])).done()


def test_a_golden_image_that_has_changed_does_not_go_into_the_pool() -> None:
    plan = clones.make(clones.REHEARSAL)
    made = clones.keep(plan)
    made.path.chmod(0o644)
    made.path.write_bytes(bytes(made.image.size))

    class Empty:
        def is_complete(self, name: str) -> bool:
            return False

        def upload_base(self, _name: str, source: Path, _tell: object, accept: Callable[[str], None]) -> None:
            accept(files.sha256(source))

    run = runs.run(plan, pool=Empty())
    with pytest.raises(TransferError, match="has changed since it came there"):
        golden.upload_step(run, "base-x-golden-0.qcow2", made.key, run.on(plan.nodes[0])).run(Quiet())
