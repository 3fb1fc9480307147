"""Records of snapshots: names, what a record keeps, and what is said of one that can't be read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import plans
import pytest

from winlab import snapshots
from winlab.design import spec
from winlab.design.plan import credentials, make
from winlab.errors import ConflictError, NotFoundError, UsageError, WinlabError
from winlab.snapshots import Drive, Emulator, Id, SavedNode, Snapshot


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def saved() -> Snapshot:
    wanted = spec.load("1-1-1", ["workers.cpus=3"])
    plan = make.make(wanted, "lab", plans.KVM, plans.stock(wanted))
    drives = {"sda": Drive(kind="disk", what="node-1.disk.qcow2", volume="lab@ready.node-1.disk.qcow2")}
    return Snapshot(
        lab="lab",
        name="ready",
        made=datetime(2026, 11, 27, 12, tzinfo=UTC),
        made_by="0.1",
        memory=True,
        paused=4.2,
        emulator=Emulator(accelerator="tcg", version="7.2.22", cpu=""),
        nodes={node.name: SavedNode(drives=drives, memory_mib=1, split=True, sample=4096) for node in plan.nodes},
        routes={"10.244.1.0/24": "10.77.0.101"},
        plan=plan,
        spec=wanted,
        roots=wanted.roots,
        credentials=credentials.generate(plan),
        kubeconfig="apiVersion: v1\n",
        kubectl=Path("/cache/kubectl"),
    )


def test_a_record_is_read_as_it_was_written_and_is_its_owner_s_alone(saved: Snapshot, state: Path) -> None:
    snapshots.write(saved)
    read = snapshots.read(saved.id)
    assert read == saved
    assert read.restored_spec() == saved.spec
    assert read.plan.digest == saved.plan.digest
    path = state / "snapshots" / "lab@ready.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert snapshots.ids() == [Id("lab", "ready")]
    assert (snapshots.forget(saved.id), snapshots.forget(saved.id), snapshots.ids()) == (True, False, [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [("ready", Id("lab", "ready")), ("other@r-2", Id("other", "r-2")), ("lab@ready", Id("lab", "ready"))],
)
def test_people_write_a_name_alone_or_with_its_lab(given: str, expected: Id) -> None:
    assert Id.parse(given, "lab") == expected
    assert Id.parse(str(expected), "third") == expected


@pytest.mark.parametrize("name", ["", "Ready", "a/b", "../x", "a.b", "-a", "a-", "a" * 33, "1st", "lab@"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a snapshot"):
        Id.parse(name, "lab")


def test_a_missing_snapshot_is_said_with_those_that_there_are(saved: Snapshot) -> None:
    with pytest.raises(NotFoundError, match="There is no snapshot 'lab@old'") as caught:
        snapshots.read(Id("lab", "old"))
    assert "no snapshot of the lab 'lab'" in caught.value.why
    snapshots.write(saved)
    with pytest.raises(NotFoundError) as caught:
        snapshots.read(Id("lab", "old"))
    assert "lab@ready" in caught.value.why


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 2}', "\0"])
def test_a_damaged_record_is_named(saved: Snapshot, state: Path, content: str) -> None:
    snapshots.write(saved)
    path = state / "snapshots" / "lab@ready.json"
    path.write_text(content)
    with pytest.raises(WinlabError, match="damaged, or of another version") as caught:
        snapshots.read(saved.id)
    assert caught.value.evidence == str(path)
    assert saved.credentials.administrator_password not in str(caught.value.why)


def test_other_files_are_passed_over(state: Path) -> None:
    folder = state / "snapshots"
    folder.mkdir()
    for name in ("lab@ready.json.tmp", "x", "@ready.json", "lab@UP.json"):
        (folder / name).write_text("")
    assert snapshots.ids() == []


def test_only_one_winlab_works_on_a_snapshot_and_a_killed_one_is_known_of(state: Path) -> None:
    which, mark, half = Id("lab", "ready"), "lab@ready.held", ".lab@ready.json.1a2b3c4d.new"
    with snapshots.exclusive(which) as held:
        assert not held.was_killed
        assert snapshots.interrupted() == [which]
        with pytest.raises(ConflictError) as error, snapshots.exclusive(which):
            pass
        assert str(os.getpid()) in error.value.why
    folder = state / "snapshots"
    assert snapshots.ids() == snapshots.interrupted() == list(folder.iterdir()) == []
    for name in (mark, half):
        (folder / name).write_text("1")
    with snapshots.exclusive(which) as held:
        assert held.was_killed
        held.stays = True
    assert [path.name for path in folder.iterdir()] == [mark]
    with snapshots.exclusive(which) as held:
        assert held.was_killed
    assert list(folder.iterdir()) == []


def test_a_snapshot_with_a_record_was_completed(saved: Snapshot, state: Path) -> None:
    snapshots.write(saved)
    (state / "snapshots/lab@ready.held").touch()
    assert (snapshots.ids(), snapshots.interrupted()) == ([saved.id], [])
