"""The step that makes a payload CD and brings it into the pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import plans
import pytest
import runs

from winlab import files
from winlab.adapters.vm import domains
from winlab.design.catalog.artifact import Artifact, Obtained
from winlab.design.system import LINUX, WINDOWS
from winlab.errors import NotFoundError, TransferError
from winlab.events import Quiet
from winlab.steps import payload, pods
from winlab.steps.payload import Disks, Supply
from winlab.steps.states import OBJECTS, PAYLOAD
from winlab.supply.artifacts import store
from winlab.supply.payload import PayloadCd


class Pool:
    """Has nothing yet."""

    def __init__(self) -> None:
        self.uploaded: dict[str, bytes] = {}

    def is_complete(self, name: str) -> bool:
        return name in self.uploaded

    def upload_base(self, name: str, path: Path, say: object) -> None:
        self.uploaded[name] = path.read_bytes()


class Source:
    def __init__(self, file: Path) -> None:
        self.file = file

    def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
        return [Obtained(artifact, self.file, files.sha256(self.file), 1, "upstream") for artifact in artifacts]


def test_a_lab_without_a_folder_leaves_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``image build`` makes the CD in the name of a lab that nobody has created."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(domains, "medium", lambda *_: None)
    monkeypatch.setattr(PayloadCd, "write", lambda _self, path: path.write_bytes(b"CD"))
    (tmp_path / "x").touch()
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    pool, source = Pool(), Supply(cast(Any, Source(tmp_path / "x")))
    run = runs.run(plan, pool=pool)

    payload.payload_step(run, source, WINDOWS).run(Quiet())

    made = run.outputs.get(PAYLOAD(of="windows"), Disks)
    assert made is not None
    assert made.store is None
    assert pool.uploaded == {made.cd: b"CD"}
    assert not run.folder.path.exists()
    with store.workspace() as folder:
        assert list(folder.parent.iterdir()) == [folder]


def test_the_host_s_kubectl_is_never_built_from_the_lab_s_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkout may come with a spec of somebody else, and the host runs its kubectl."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(domains, "medium", lambda *_: None)
    monkeypatch.setattr(PayloadCd, "write", lambda _self, path: path.write_bytes(b"CD"))
    monkeypatch.setattr(payload, "_preloaded", lambda *_: None)
    asked: list[dict[str, Path]] = []

    class Built(Source):
        """In place of a build: its programs say whether they are of the checkout."""

        def __init__(
            self, _version: str, trees: dict[str, Path] | None = None, *_builds: object, **_sums: object
        ) -> None:
            asked.append(trees or {})
            super().__init__(tmp_path / ("checkout" if trees else "published"))
            self.file.touch()

        def cannot(self, _wanted: object) -> dict[Artifact, str]:
            return {}

        def unready(self, _wanted: object) -> None:
            return None

    monkeypatch.setattr(payload, "BuildSource", Built)
    plan = plans.make(plans.KVM, "1-1-1", f"kubernetes.source={tmp_path}")
    run = runs.run(plan, pool=Pool())
    supply, _ = payload.choose(plan, payload.Origin(kind="build"))
    for system in (LINUX, WINDOWS):
        payload.payload_step(run, supply, system).run(Quiet())
    assert run.folder.kubectl.resolve().name == "published"
    assert asked == [{"k8s.io/kubernetes": tmp_path}, {}, {}]  # to see that there is one, and to take it


def test_a_checkout_without_a_published_kubectl_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Building(Source):
        def __init__(
            self, _version: str, trees: dict[str, Path] | None = None, *_builds: object, **_sums: object
        ) -> None:
            self.own = bool(trees)

        def cannot(self, wanted: list[Artifact]) -> dict[Artifact, str]:
            return {} if self.own else dict.fromkeys(wanted, "is not published")

        def unready(self, _wanted: object) -> None:
            return None

    monkeypatch.setattr(payload, "BuildSource", Building)
    plan = plans.make(plans.KVM, "1-1-1", f"kubernetes.source={tmp_path}")
    with pytest.raises(NotFoundError, match="kubectl"):
        payload.choose(plan, payload.Origin(kind="build"))
    payload.choose(plan, payload.Origin(kind="build"), settled=True)  # the lab has one


class Stale(Source):
    """A cache whose file has changed since it was obtained; the size is the same."""

    def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
        obtained = super().obtain_all(artifacts, progress)
        self.file.write_text("other")
        return obtained


def test_a_manifest_that_changed_in_the_cache_is_not_applied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("kind:")
    plan = plans.make(plans.TCG, "1-1-1", "network.cni=calico-vxlan")
    monkeypatch.setattr(pods.Kubectl, "of", lambda _: None)
    monkeypatch.setattr(pods, "apply", lambda *_: pytest.fail("it was applied"))
    step = next(
        one
        for one in pods.steps(runs.run(plan), Supply(cast(Any, Stale(tmp_path / "x"))))
        if one.reaches.kind is OBJECTS
    )
    with pytest.raises(TransferError, match="changed since it was obtained"):
        step.run(Quiet())
