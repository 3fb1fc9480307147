"""The n-th change of a disk fails, for every n: existing files stay, the error says why, and a retry succeeds."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as cache_once
from pathlib import Path

import certificates
import disks
import plans
import pytest
from disk_faults import failing

from winlab.adapters.kube import kubeconfig, reduced
from winlab.cli.main import explain
from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Manifest, Obtained
from winlab.design.catalog.recipes import Download
from winlab.design.plan import credentials
from winlab.design.plan.model import Plan
from winlab.engine.durations import Durations
from winlab.errors import WinlabError
from winlab.events import Note, Quiet
from winlab.host import changes, facts
from winlab.lab_folder import LabFolder
from winlab.operations import lock_file, recorded
from winlab.operations.planning import Proposal
from winlab.supply import download
from winlab.supply.artifacts import store
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.images import cache, digests, imported, library

DISK = disks.qcow2(b"disk" * 100)
OPERATOR = Manifest("calico", "v3.32.1", "operator.yaml")
OWN = kubeconfig.for_lab(
    reduced.identity(certificates.admin(), "controller-1"), "lab", "192.0.2.1:6443", "192.0.2.0/24"
)
USERS = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"
# how the disk fails, and whether it stays so
FAULTS = [(errno.ENOSPC, False), (errno.EROFS, True)]


@dataclass
class Work:
    """Something that writes: how it is prepared (what it must not lose), done, and checked afterwards."""

    prepare: Callable[[Path], None]
    do: Callable[[Path], object]
    done: Callable[[Path], object]
    kept: Callable[[Path], object]  # the files before it, and after it failed


_GENERATED: dict[str, credentials.Credentials] = {}
_generate = credentials.generate


def generated(of: Plan) -> credentials.Credentials:
    """Keys take long to make."""
    return _GENERATED.setdefault(of.digest, _GENERATED.get(of.digest) or _generate(of))


def nothing(_: Path) -> None:
    pass


@cache_once
def plan(source: str = "1-1-1") -> Plan:
    return plans.make(plans.KVM, source)


def old_credentials(_: Path) -> None:
    LabFolder("lab").ensure_credentials(plan("1-0-1"))


@cache_once
def proposal(source: str) -> Proposal:
    wanted = spec.load(source, [])
    return Proposal(wanted, plan(source), plans.stock(wanted))


def record(folder: Path) -> None:
    recorded.write(LabFolder("lab"), proposal("1-1-1"))


def lock() -> lock_file.Lock:
    return lock_file.collect(plan(), [], spec="1-1-1")


def staged(_: Path) -> None:
    with LabFolder("lab").locked(), LabFolder("lab").staging() as place:
        (place / "x").parent.stat()


def image(_: Path) -> cache.CachedImage:
    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(DISK)
        return hashlib.sha256(DISK).hexdigest(), "x"

    recipe = recipes.get("debian-13")
    return cache.keep(recipe, cache.key(recipe), fill, Quiet())


def in_cache() -> list[str]:
    return [one.sha256 for one in cache.entries()]


def artifact(folder: Path, name: str = "a") -> Obtained:
    path = folder / "operator.yaml"
    return store.keep(store.key({"x": name}), OPERATOR, path, "x")


def old_artifact(folder: Path) -> None:
    (folder / "operator.yaml").write_bytes(b"kind: x\n")
    artifact(folder, "old")


def export(folder: Path) -> None:
    (folder / "out.tar").unlink(missing_ok=True)
    library.export(library.find("debian-13"), folder / "out.tar", Quiet())


def write_bundle(folder: Path) -> None:
    text = b"kind: x\n"
    path = folder / "in/operator.yaml"
    one = Obtained(OPERATOR, path, hashlib.sha256(text).hexdigest(), len(text), "x")
    bundle.write(folder / "b.tar", [one], {}, Quiet())


def bundle_inputs(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in/operator.yaml").write_bytes(b"kind: x\n")
    (folder / "b.tar").write_bytes(b"the old bundle")


def exported(folder: Path) -> None:
    recipe = recipes.get("debian-13")
    manifest = {
        **{"file": "image.qcow2", "sha256": hashlib.sha256(DISK).hexdigest(), "size": len(DISK), "origin": "x"},
        **{"made": "2026-01-01T00:00:00Z", "seconds": 1.0, "recipe": recipe.model_dump(mode="json")},
        "key": cache.key(recipe),
    }
    with tarfile.open(folder / "image.tar", "w") as archive:
        for name, text in (("manifest.json", json.dumps(manifest).encode()), ("image.qcow2", DISK)):
            row = tarfile.TarInfo(name)
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text))


def user_config(folder: Path) -> None:
    (folder / "config").write_text(USERS)
    LabFolder("lab").write(LabFolder("lab").kubeconfig, OWN)


def merged(folder: Path) -> bool:
    return "winlab-lab" in (folder / "config").read_text()


def users_part(folder: Path) -> bool:
    text = (folder / "config").read_text()
    return text.startswith("apiVersion: v1\nkind: Config\n")


def merged_config(folder: Path) -> None:
    user_config(folder)
    kubeconfig.publish("lab")


def facts_of(folder: Path) -> object:
    return facts.read_facts(folder / "host.yaml")


def host_record(folder: Path) -> changes.Record:
    return changes.Record(folder / "changes.yaml")


WORK = {
    "credentials": Work(
        nothing,
        lambda _: LabFolder("lab").ensure_credentials(plan()),
        lambda _: LabFolder("lab").has_credentials_for(plan()),
        nothing,
    ),
    "other credentials": Work(
        old_credentials,
        lambda _: LabFolder("lab").ensure_credentials(plan()),
        lambda _: LabFolder("lab").has_credentials_for(plan()),
        lambda _: LabFolder("lab").credentials().ssh_key[:10],
    ),
    "record": Work(
        lambda _: recorded.write(LabFolder("lab"), proposal("1-0-1")),
        record,
        lambda _: recorded.read(LabFolder("lab")).plan == plan(),
        lambda _: recorded.read(LabFolder("lab")).version,
    ),
    "lock and staging": Work(nothing, staged, lambda _: not list(LabFolder("lab").path.glob("staging-*")), nothing),
    "image": Work(nothing, image, lambda _: len(in_cache()) == 1, nothing),
    "image import": Work(
        exported, lambda folder: imported.bring(folder / "image.tar", Quiet()), lambda _: len(in_cache()) == 1, nothing
    ),
    "image export": Work(
        image,
        export,
        lambda folder: (folder / "out.tar").stat().st_size > len(DISK),
        lambda _: in_cache(),
    ),
    "artifact": Work(
        old_artifact,
        artifact,
        lambda _: len(store.entries()) == 2,
        lambda _: store.lookup(store.key({"x": "old"})),
    ),
    "prune": Work(image, lambda _: cache.prune(set()), lambda _: not in_cache(), nothing),
    "lock file": Work(
        lambda folder: (folder / "winlab.lock").write_text(lock_file.HEAD + "format: 1\n"),
        lambda folder: lock_file.write(folder / "winlab.lock", lock()),
        lambda folder: lock_file.read(folder / "winlab.lock") == lock(),
        lambda folder: (folder / "winlab.lock").read_text().startswith(lock_file.HEAD),
    ),
    "bundle": Work(
        bundle_inputs,
        write_bundle,
        lambda folder: bundle.verify(folder / "b.tar", Quiet()),
        lambda folder: (folder / "b.tar").stat().st_size > 0,
    ),
    "local copy": Work(
        lambda folder: (folder / "x.qcow2").write_bytes(DISK),
        lambda folder: download.fetch(
            Download(url="https://x.example/x", sha256=hashlib.sha256(DISK).hexdigest()),
            folder / "y",
            Quiet(),
            part=folder / "p",
            source=folder / "x.qcow2",
        ),
        lambda folder: (folder / "y").read_bytes() == DISK,
        nothing,
    ),
    "kubeconfig merge": Work(user_config, lambda _: kubeconfig.publish("lab", use=True), merged, users_part),
    "kubeconfig forget": Work(
        merged_config, lambda _: kubeconfig.forget("lab"), lambda folder: not merged(folder), users_part
    ),
    "removal": Work(
        old_credentials, lambda _: LabFolder("lab").remove(), lambda _: not LabFolder("lab").path.exists(), nothing
    ),
    "host facts": Work(
        nothing,
        lambda folder: facts.write_facts(facts.HostFacts(accelerator="kvm"), folder / "host.yaml"),
        facts_of,
        nothing,
    ),
    "host record": Work(
        nothing, lambda folder: host_record(folder).mark("mapping"), lambda folder: host_record(folder).changes, nothing
    ),
}


@pytest.mark.parametrize(
    ("number", "stays"),
    FAULTS,
    ids=lambda value: errno.errorcode.get(value, "") if value > 1 else ("once", "stays")[value],
)
@pytest.mark.parametrize("name", WORK)
def test_nothing_is_lost_and_a_retry_succeeds(
    name: str, number: int, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.answer(monkeypatch)
    monkeypatch.setattr(credentials, "generate", generated)
    work = WORK[name]
    for fail_at in range(1, 200):
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        monkeypatch.setenv("WINLAB_STATE", str(folder / "state"))
        monkeypatch.setenv("WINLAB_CACHE", str(folder / "cache"))
        monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
        work.prepare(folder)
        before = work.kept(folder)
        with failing(folder, fail_at, number, stays=stays, removals=name == "removal") as disk:
            try:
                work.do(folder)
            except WinlabError as error:
                assert error.why or error.cure, f"{disk.failed}: {error}"  # noqa: PT017
                assert "Errno" in explain(error) or error.cure, f"{disk.failed}: {error}"  # noqa: PT017
        assert work.kept(folder) == before, disk.failed
        work.do(folder)
        assert work.done(folder), disk.failed
        left = [path for path in folder.rglob("*") if path.name.endswith(".new") or (path.parent.name == "staging")]
        assert not left, disk.failed
        if not disk.failed:
            assert fail_at > 1, "nothing was written"
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_optional_writes_never_fail(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal, the usual times, and known digests: work continues without them."""
    for fail_at in range(1, 12):
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        monkeypatch.setenv("WINLAB_STATE", str(folder / "state"))
        monkeypatch.setenv("WINLAB_CACHE", str(folder / "cache"))
        large = folder / "large"
        large.write_bytes(b"x" * 100)
        monkeypatch.setattr(digests, "SMALL", 10)
        lab, known = LabFolder("lab"), Durations("kvm")
        with failing(folder, fail_at, number, stays=True):
            lab.record(Note(text="one"))
            known.learn("booted", "x", 5.0)
            assert digests.sha256(large, Quiet()) == hashlib.sha256(b"x" * 100).hexdigest()
        lab.record(Note(text="two"))
        rows = [json.loads(line) for line in lab.journal.read_text().splitlines() if line.endswith("}")]
        assert rows[-1]["text"] == "two"
        known.learn("booted", "x", 5.0)
        assert known.usual("booted", "x") == 5.0
