"""The step that makes a payload CD and uploads it to the pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import plans
import pytest
import runs

from winlab import files
from winlab.adapters.vm import devices
from winlab.design.catalog.artifact import Artifact, Obtained, Program
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.system import LINUX, WINDOWS
from winlab.errors import NotFoundError, TransferError
from winlab.events import Quiet
from winlab.steps import payload, pods, sources
from winlab.steps.payload import Disks
from winlab.steps.sources import Supply
from winlab.steps.states import OBJECTS, PAYLOAD
from winlab.supply.artifacts import store
from winlab.supply.payload import PayloadCd


class Pool:
    """Has nothing yet."""

    def __init__(self) -> None:
        self.uploaded: dict[str, bytes] = {}

    def is_complete(self, name: str) -> bool:
        return name in self.uploaded

    def upload_base(self, name: str, path: Path, *_: object) -> None:
        self.uploaded[name] = path.read_bytes()


class Source:
    name = "upstream"

    def __init__(self, file: Path, *pinned: str) -> None:
        self.file = file
        self.known = pinned

    def cannot(self, wanted: list[Artifact]) -> dict[Artifact, str]:
        return {}

    def pinned(self, program: Program) -> bool:
        return str(program).removesuffix(" (linux)") in self.known

    def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
        return [Obtained(artifact, self.file, files.sha256(self.file), 1, "upstream") for artifact in artifacts]


class Said:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, text: str, _fraction: float | None = None) -> None:
        self.texts.append(text)


def test_a_lab_without_a_folder_creates_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``image build`` makes the CD in the name of a lab that does not exist."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(devices, "medium", lambda *_: None)
    monkeypatch.setattr(PayloadCd, "write", lambda _self, path: path.write_bytes(b"CD"))
    (tmp_path / "x").touch()
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    pool, source = Pool(), Supply(cast(Any, Source(tmp_path / "x")))
    run = runs.run(plan, pool=pool)

    payload.payload_step(run, source, WINDOWS, run.on(run.plan.nodes[0])).run(Quiet())

    made = run.outputs.get(PAYLOAD(of="windows", host=HYPERVISOR), Disks)
    assert made is not None
    assert made.store is None
    assert pool.uploaded == {made.cd: b"CD"}
    assert not run.folder.path.exists()
    with store.workspace() as folder:
        assert list(folder.parent.iterdir()) == [folder]


def test_the_host_s_kubectl_is_never_built_from_the_lab_s_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkout may come with another user's spec, and the host runs its kubectl."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(devices, "medium", lambda *_: None)
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

        def pinned(self, _program: object) -> bool:
            return True

        def compiles(self, _wanted: object) -> bool:
            return False

        def unready(self, _wanted: object) -> None:
            return None

    monkeypatch.setattr(sources, "BuildSource", Built)
    plan = plans.make(plans.KVM, "1-1-1", f"kubernetes.source={tmp_path}")
    run = runs.run(plan, pool=Pool())
    supply, _ = sources.choose(plan, sources.Origin(kind="build"))
    for system in (LINUX, WINDOWS):
        payload.payload_step(run, supply, system, run.on(run.plan.nodes[0])).run(Quiet())
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

        def pinned(self, _program: object) -> bool:
            return True

        def unready(self, _wanted: object) -> None:
            return None

    monkeypatch.setattr(sources, "BuildSource", Building)
    plan = plans.make(plans.KVM, "1-1-1", f"kubernetes.source={tmp_path}")
    with pytest.raises(NotFoundError, match="kubectl"):
        sources.choose(plan, sources.Origin(kind="build"))
    sources.choose(plan, sources.Origin(kind="build"), settled=True)  # the lab has one


@pytest.mark.parametrize(
    ("pinned", "locked", "runs_it"),
    [
        ((), False, False),  # the publisher's own list of digests
        (("containerd 2.3.7",), False, False),
        (("containerd 2.3.7", "ctr 2.3.7"), False, True),
        (("containerd 2.3.7", "ctr 2.3.7"), True, True),
        ((), True, False),  # the lock came with the spec
    ],
)
def test_the_host_runs_containerd_only_where_a_digest_verifies_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pinned: tuple[str, ...], locked: bool, runs_it: bool
) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(devices, "medium", lambda *_: None)
    monkeypatch.setattr(PayloadCd, "write", lambda _self, path: path.write_bytes(b"CD"))
    ran: list[str] = []

    def make(_images: object, containerd: Obtained, ctr: Obtained, disk: Path, *_: object) -> None:
        ran.extend(str(one.artifact) for one in (containerd, ctr))
        disk.write_bytes(b"store")

    monkeypatch.setattr(payload.preload, "make", make)
    (tmp_path / "x").touch()
    source = Source(tmp_path / "x", "kubectl v1.36.3", *pinned)
    supply = Supply(cast(Any, source), check=(lambda _: None) if locked else None)
    run, said = runs.run(plans.make(plans.TCG, "1-1-1"), pool=Pool()), Said()
    payload.payload_step(run, supply, LINUX, run.on(run.plan.nodes[0])).run(said)
    made = run.outputs.get(PAYLOAD(of="linux", host=HYPERVISOR), Disks)
    assert made is not None
    assert (made.store is not None) == runs_it
    assert ran == (["containerd 2.3.7 (linux)", "ctr 2.3.7 (linux)"] if runs_it else [])
    assert (sources.UNVOUCHED in said.texts) != runs_it


def _refused(_obtained: object) -> None:
    raise AssertionError("a neighbour's kubectl is in no lock file")


def linked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Source, *, locked: bool = False) -> str:
    """Which kubectl a lab of Kubernetes 1.35 gets for the host."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    asked: list[str] = []

    class Asked:
        name, cannot, pinned = source.name, source.cannot, source.pinned

        def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
            asked.extend(map(str, artifacts))
            return source.obtain_all(artifacts, progress)

    (tmp_path / "x").touch()
    run = runs.run(plans.make(plans.TCG, "1-1-1", "kubernetes.version=1.35"))
    payload._link_kubectl(run, Supply(cast(Any, Asked()), check=_refused if locked else None), [], Quiet())
    assert run.folder.kubectl.resolve() == tmp_path / "x"
    return " ".join(asked)


def test_the_host_s_kubectl_is_pinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kubectl works with servers one minor older or newer; 1.35's has a list of digests only."""
    listed, sure = Source(tmp_path / "x"), Source(tmp_path / "x", "kubectl v1.36.3", "kubectl v1.34.4")
    assert linked(monkeypatch, tmp_path, sure) == "kubectl v1.36.3 (linux)"
    assert linked(monkeypatch, tmp_path, sure, locked=True) == "kubectl v1.36.3 (linux)"  # though no lock names it
    with pytest.raises(NotFoundError):
        linked(monkeypatch, tmp_path, listed, locked=True)
    own = Source(tmp_path / "x", "kubectl v1.35.4")  # built from a module with a sum
    assert linked(monkeypatch, tmp_path, own) == "kubectl v1.35.4 (linux)"
    with pytest.raises(NotFoundError, match="no kubectl that this host may run") as caught:
        linked(monkeypatch, tmp_path, listed)
    assert "--source build" in caught.value.cure


def test_a_source_is_shown_with_what_this_host_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.select, "choose", lambda *_, **__: (Source(Path("x")), "upstream: it answers."))
    plan = plans.make(plans.KVM, "1-1-1")
    for check in (None, lambda _: None):  # a lock file alone verifies nothing
        assert sources.choose(plan, sources.Origin(), check=check)[1] == f"upstream: it answers. {sources.UNVOUCHED}"
    for said in (
        sources.choose(plan, sources.Origin(), runs=False)[1],
        sources.choose(plan, sources.Origin(), settled=True)[1],
    ):
        assert said == "upstream: it answers."


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
