"""A snapshot in a file: what goes in comes out elsewhere, under winlab's own names; nothing is left of what fails."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import disks
import pytest
import saved
import sites
from pools import MemoryPool
from saved import CD, ID, MEMORY

from winlab import snapshots
from winlab.adapters.vm import save_image
from winlab.errors import ConflictError, HostError, NotFoundError, TransferError, UsageError, WinlabError
from winlab.operations.snapshot import archive, compatible, delete, transfer
from winlab.snapshots import Drive, Emulator, Id, Snapshot
from winlab.supply import payload

QUIET: Any = lambda _: None  # noqa: E731
NEW = Id("other", "copy")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compatible, "_of", lambda host: saved.EMULATOR)
    disks.answer(monkeypatch)


@pytest.fixture
def pool() -> MemoryPool:
    return MemoryPool()


@pytest.fixture
def there() -> MemoryPool:
    """The pool of the host that imports."""
    return MemoryPool(folder="/there")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ready.winlab"


def site(pool: MemoryPool) -> sites.FakeSite:
    return sites.FakeSite(sites.hypervisor(sites.idle(), pool))


def exported(pool: MemoryPool, file: Path, **changes: Any) -> Snapshot:
    """Export a snapshot, and forget it."""
    made = saved.snapshot(pool, **changes)
    snapshots.write(made)
    transfer.export(ID, file, site(pool), QUIET)
    snapshots.forget(ID)
    return made


def imported(pool: MemoryPool, file: Path, renamed: str | None = str(NEW)) -> Snapshot:
    return transfer.import_file(file, renamed, site(pool), QUIET)


def left(pool: MemoryPool) -> list[str]:
    return [name for name in pool.volumes if not name.startswith("base-")]


@pytest.mark.parametrize("how", [{}, {"split": False}, {"memory": False}])
def test_a_snapshot_is_the_same_on_another_host(
    pool: MemoryPool, there: MemoryPool, file: Path, how: dict[str, bool]
) -> None:
    before = dict(pool.volumes)
    made = exported(pool, file, **how)
    assert file.stat().st_mode & 0o777 == 0o600
    got = imported(there, file)
    assert snapshots.read(NEW) == got
    assert (got.id, got.plan.lab, got.credentials, got.memory) == (NEW, "other", made.credentials, made.memory)
    for end in ("state", "memory", "save", "xml"):
        for node in got.nodes:
            assert there.volumes.get(NEW.volume(node, end)) == pool.volumes.get(ID.volume(node, end))
    for name, node in got.nodes.items():
        assert node.drives.keys() == made.nodes[name].drives.keys()
        for target, drive in node.drives.items():
            origin = made.nodes[name].drives[target]
            if drive.kind == "disk":
                frozen = there.below[drive.volume]
                assert frozen == f"other--copy.{drive.what}"
                assert there.volumes[frozen] == disks.qcow2(f"+frozen {drive.what}+base".encode())
                assert frozen not in there.below
            elif drive.kind == "own":
                assert there.volumes[drive.volume] == pool.volumes[origin.volume]
            else:
                assert there.below[drive.volume] == drive.what
                assert there.volumes[drive.what] == b"the CD"
    assert not [name for name in pool.names() if "export" in name]
    assert before.keys() <= pool.volumes.keys()


def test_a_shared_cd_gets_a_name_by_its_content_unless_the_pool_has_it(
    pool: MemoryPool, there: MemoryPool, file: Path
) -> None:
    """Otherwise a stranger's CD would be that of all later labs."""
    exported(pool, file)
    digest = hashlib.sha256(b"the CD").hexdigest()
    there.put(CD, b"the own CD")
    there.digests[CD] = hashlib.sha256(b"the own CD").hexdigest()
    (name,) = {drive.what for node in imported(there, file).nodes.values() for drive in cds(node.drives)}
    assert name == f"{payload.PREFIX}imported-{digest[:32]}.iso"
    assert there.volumes[CD] == b"the own CD"
    there.digests[CD] = digest
    got = imported(there, file, "other@again")
    assert {drive.what for node in got.nodes.values() for drive in cds(node.drives)} == {CD}


def cds(drives: dict[str, Drive]) -> list[Drive]:
    return [drive for drive in drives.values() if drive.kind == "shared"]


def test_zeros_take_no_space(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    made = exported(pool, file)
    assert file.stat().st_size < len(MEMORY)
    there.sent = 0
    imported(there, file)
    states = sum(len(pool.volumes[ID.volume(node, "state")]) for node in made.nodes)
    assert there.sent - states <= len(made.nodes) * archive.BLOCK


def test_its_names_are_those_of_the_file_or_of_the_user(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    exported(pool, file)
    assert imported(there, file, None).id == ID
    assert imported(there, file, "second").id == Id("lab", "second")
    with pytest.raises(UsageError, match="can't be the name of a lab"):
        imported(there, file, "base-x@ready")
    with pytest.raises(UsageError, match="can't be the name of a snapshot"):
        imported(there, file, "other@../x")


def test_what_exists_is_not_replaced(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    exported(pool, file)
    imported(there, file)
    before = dict(there.volumes)
    with pytest.raises(ConflictError) as mine:
        imported(there, file)
    assert "--as other@NAME" in mine.value.cure
    snapshots.forget(NEW)  # now it looks like another account's
    with pytest.raises(ConflictError, match="There is already a snapshot 'other@copy'"):
        imported(there, file)
    assert there.volumes == before


def test_a_deleted_snapshot_leaves_its_disks_to_labs_on_them_and_comes_again(
    pool: MemoryPool, there: MemoryPool, file: Path
) -> None:
    exported(pool, file)
    imported(there, file)
    there.put("try.node-1.disk.qcow2", b"", "other--copy.node-1.disk.qcow2")
    delete.delete(NEW, site(there), QUIET)
    assert left(there) == ["other--copy.node-1.disk.qcow2", "try.node-1.disk.qcow2"]
    imported(there, file)
    assert there.below[NEW.volume("node-1", "disk.qcow2")] == "other--copy.node-1.disk-2.qcow2"


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("number", [1, 4, 6, 9, 12])
def test_an_import_that_fails_or_is_killed_leaves_nothing_that_stays(
    pool: MemoryPool, there: MemoryPool, file: Path, number: int, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(pool, file)
    count = 0

    def change(name: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise HostError("The pool is full.")

    there.on_change = change
    with monkeypatch.context() as patch:
        if killed:  # nothing is cleaned up
            patch.setattr(transfer.remains, "discard", lambda *_: [])
            patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(WinlabError, match="full"):
            imported(there, file)
    assert killed or left(there) == []
    assert snapshots.ids() == []
    there.on_change = QUIET
    imported(there, file)
    whole = sorted(left(there))
    delete.delete(NEW, site(there), QUIET)
    assert left(there) == []
    imported(there, file)
    assert sorted(left(there)) == whole


def test_an_import_needs_space_before_it_begins(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    exported(pool, file)
    there.space = 1000
    with pytest.raises(HostError, match="not enough space"):
        imported(there, file)
    assert there.volumes == {}


def test_what_can_not_be_restored_here_is_refused_before_anything_is_touched(
    pool: MemoryPool, there: MemoryPool, file: Path
) -> None:
    exported(pool, file, emulator=Emulator(accelerator="kvm", version="10.0.0", cpu="x"))
    with pytest.raises(ConflictError) as error:
        imported(there, file)
    assert "QEMU was 10.0" in error.value.why
    assert there.volumes == {}


def test_an_export_that_fails_leaves_nothing(pool: MemoryPool, file: Path) -> None:
    made = saved.snapshot(pool)
    snapshots.write(made)
    before = dict(pool.volumes)
    pool.space = 5
    with pytest.raises(HostError, match="not enough space"):
        transfer.export(ID, file, site(pool), QUIET)
    pool.space = 1 << 40
    del pool.volumes[ID.volume("node-1", "memory")]
    with pytest.raises(NotFoundError):
        transfer.export(ID, file, site(pool), QUIET)
    pool.volumes[ID.volume("node-1", "memory")] = MEMORY
    assert (pool.volumes, list(file.parent.glob("*ready.winlab*"))) == (before, [])
    transfer.export(ID, file, site(pool), QUIET)
    with pytest.raises(UsageError, match="already exists"):
        transfer.export(ID, file, site(pool), QUIET)


def rewritten(file: Path, **changed: bytes) -> None:
    """Change members of a file, with right digests: its maker decides everything in it."""
    with archive.opened(file) as source:
        members = {name: b"".join(source.chunks(name)) for name in source.rows}
    names = {name.replace(".", "_").replace("-", "_"): name for name in members}
    for key, content in changed.items():
        members[names[key]] = content
    file.unlink()
    archive.write(file, {name: (lambda content=content: iter_of(content)) for name, content in members.items()})


def iter_of(content: bytes) -> Any:
    yield content


def refused(there: MemoryPool, file: Path, why: str) -> None:
    with pytest.raises(UsageError) as error:
        imported(there, file)
    assert why in f"{error.value}"
    assert (left(there), snapshots.ids()) == ([], [])


@pytest.mark.parametrize(
    ("disk", "why"),
    [
        (disks.qcow2(backing="/etc/shadow"), "names a backing file"),
        (disks.qcow2(features=4), "another file"),
        (disks.qcow2(encryption=1), "encrypted"),
        (b"no disk", "begins like raw"),
    ],
)
def test_a_disk_that_names_other_files_is_refused(
    pool: MemoryPool, there: MemoryPool, file: Path, disk: bytes, why: str
) -> None:
    exported(pool, file)
    rewritten(file, node_1_disk_qcow2=disk)
    refused(there, file, why)


def test_a_cd_that_is_a_disk_is_refused(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    """QEMU takes it as raw; but other programs guess."""
    exported(pool, file)
    rewritten(file, base_kubernetes_linux_0123456789abcdef_iso=disks.qcow2(backing="/etc/shadow"))
    refused(there, file, "begins like qcow2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<devices>", '<devices><hostdev mode="subsystem" type="pci"/>'),
        ('file="/pool/lab.node-1.disk.qcow2"', 'dev="/dev/sda"'),
        ("<name>", "<!DOCTYPE x><name>"),
    ],
)
def test_a_machine_with_something_of_the_host_is_refused(
    pool: MemoryPool, there: MemoryPool, file: Path, old: str, new: str
) -> None:
    exported(pool, file)
    xml = saved.definition(saved.plan(), saved.plan().node("node-1"))
    rewritten(file, node_1_state=save_image.header(xml.replace(old, new, 1), "") + b"devices")
    refused(there, file, "The saved machine 'node-1' is refused.")


def test_a_cookie_with_something_else_is_refused(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    exported(pool, file)
    xml = saved.definition(saved.plan(), saved.plan().node("node-1"))
    rewritten(file, node_1_state=save_image.header(xml, "<cookie><other/></cookie>") + b"devices")
    refused(there, file, "cookie")


@pytest.mark.parametrize("name", ["node_1_state", "node_1_xml"])
def test_bytes_that_are_not_text_are_refused(pool: MemoryPool, there: MemoryPool, file: Path, name: str) -> None:
    exported(pool, file, memory=name.endswith("state"))
    rewritten(file, **{name: b"\xff" * 200})
    with pytest.raises(WinlabError) as error:
        imported(there, file)
    assert error.value.cure
    assert (left(there), snapshots.ids()) == ([], [])


def test_other_memory_than_the_machine_s_is_refused(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    exported(pool, file)
    rewritten(file, node_1_memory=MEMORY + b"x")
    refused(there, file, "does not have the 1 MiB")


def test_a_file_without_what_its_record_lists_is_refused(pool: MemoryPool, there: MemoryPool, file: Path) -> None:
    made = exported(pool, file)
    nodes = {name: node.model_copy(update={"split": False}) for name, node in made.nodes.items()}
    record = made.model_copy(update={"nodes": nodes}).model_dump_json(by_alias=True).encode()
    rewritten(file, record_json=record)
    refused(there, file, "does not have what its record lists")


def test_a_damaged_file_is_never_used(pool: MemoryPool, file: Path) -> None:
    exported(pool, file)
    content = file.read_bytes()
    with archive.opened(file) as source:
        ends = [source._places[name] + row.packed - 1 for name, row in source.rows.items()]
    for at in ends:
        there = MemoryPool()
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(TransferError, match="is damaged"):
            imported(there, file)
        assert (left(there), snapshots.ids()) == ([], [])
