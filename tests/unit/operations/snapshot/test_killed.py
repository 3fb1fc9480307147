"""Killed between any two changes, the same command is enough: nothing is missing, left over, or paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import disks
import pytest
import sites
from mortal import Killed, World
from pools import MemoryPool
from saved import ID

from winlab import snapshots
from winlab.adapters import traces
from winlab.adapters.vm import domains
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan.model import Plan
from winlab.errors import ConflictError, GuestError, HostError, NotFoundError, UsageError
from winlab.events import Event, Note, ignore
from winlab.lab_folder import LabFolder
from winlab.lab_snapshots import Snapshots
from winlab.operations import room
from winlab.operations.snapshot import archive, copying, delete, remains, required, save, transfer
from winlab.snapshots import Id

Verb = Callable[[World], object]


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[[], World]]:
    """Makes hosts, each with its own folders; the one before is gone then."""
    numbers, patch = count(), pytest.MonkeyPatch()

    def make() -> World:
        patch.undo()
        disks.answer(patch)
        here = tmp_path / str(next(numbers))
        patch.setenv("WINLAB_STATE", str(here / "state"))
        patch.setenv("WINLAB_CACHE", str(here / "cache"))
        return World(patch)

    yield make
    patch.undo()


def killed(
    worlds: Callable[[], World],
    verb: Verb,
    before: Verb = lambda _: None,
    is_done: Callable[[World], bool] = lambda _: False,
) -> Iterator[World]:
    """Hosts on which a verb was killed, each one change later, and run again.

    :param is_done: whether all was made; then the verb refuses to make it again.
    """
    for number in count():
        world = worlds()
        before(world)
        world.left = number
        try:
            verb(world)
        except Killed:
            pass
        else:
            assert number > 3, "each verb makes several changes"
            yield world
            return
        world.left = None
        if is_done(world):
            with pytest.raises((ConflictError, UsageError), match="already"):
                verb(world)
        else:
            verb(world)
        assert world.marks() == [], number
        assert world.idle() == set(), number
        yield world


def saves(world: World) -> None:
    save.save(ID, world.site, ignore)


def is_saved(_: World) -> bool:
    return snapshots.ids() == [ID]


def saves_disks(world: World) -> None:
    save.save(ID, world.site, ignore, disks_only=True)


def goes_off(world: World) -> None:
    world.states = dict.fromkeys(world.states, "off")


def deletes(world: World) -> None:
    delete.delete(ID, world.site, ignore)


def deletes_of_a_lab_that_is_gone(world: World) -> None:
    saves(world)
    problems = traces.remove("lab", world.hosts, world.site.overlay, lambda *_: None)
    assert not problems


def clones(world: World) -> None:
    copying.clone(ID, ["try-1", "try-2"], world.site, ignore)


def is_cloned(world: World) -> bool:
    return world.running("try-1") and not (LabFolder("try-1").path / required.COPYING).exists()


def resets(world: World) -> None:
    copying.reset(ID, "lab", world.site, ignore)


def exports(world: World) -> None:
    transfer.export(ID, file(world), world.site, ignore)


def imports(world: World) -> None:
    transfer.import_file(file(world), "other@copy", world.site, ignore)


def is_imported(_: World) -> bool:
    return Id("other", "copy") in snapshots.ids()


def file(_: World) -> Path:
    return LabFolder("lab").path.parents[2] / "ready.winlab"


def exported(world: World) -> None:
    saves(world)
    exports(world)


def test_a_lab_is_saved(worlds: Callable[[], World]) -> None:
    undisturbed = worlds()
    saves(undisturbed)
    names = undisturbed.whole(ID)
    for number, world in enumerate(killed(worlds, saves, is_done=is_saved)):
        assert world.running("lab"), number
        assert (snapshots.ids(), world.whole(ID)) == ([ID], names), number


def test_the_disks_of_a_lab_that_is_off_are_saved(worlds: Callable[[], World]) -> None:
    for world in killed(worlds, saves_disks, goes_off, is_saved):
        assert snapshots.ids() == [ID]
        assert set(world.states.values()) == {"off"}


def test_a_lab_is_put_back(worlds: Callable[[], World]) -> None:
    for number, world in enumerate(killed(worlds, resets, saves)):
        assert world.running("lab"), number
        with pytest.raises(ConflictError, match="There is already a lab 'lab'"):
            copying.clone(ID, ["lab"], world.site, ignore)


def test_a_machine_that_the_snapshot_does_not_have_goes_with_its_volumes(worlds: Callable[[], World]) -> None:
    def before(world: World) -> None:
        saves(world)
        world.add("node-2")
        assert len(world.pool.names("lab.node-2.")) > 1

    for number, world in enumerate(killed(worlds, resets, before)):
        assert world.running("lab"), number
        assert world.pool.names("lab.node-2.") == [], number


def test_a_machine_on_another_hypervisor_than_the_snapshot_is_removed(worlds: Callable[[], World]) -> None:
    """The lab was on the second one, and the snapshot was imported."""
    world, removed = worlds(), list[tuple[object, str]]()
    saves(world)
    first = domains.machines
    other = next(one for one in world.hosts.machines("lab") if one.tag.node == "node-1")
    second = sites.idle(pool=MemoryPool())
    world.site.each = Hypervisors((*world.hosts, sites.hypervisor(second, second.pool, name="hypervisor-2")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domains, "machines", lambda conn, lab: [other] if conn is second else first(conn, lab))
        patch.setattr(domains, "remove", lambda conn, one: removed.append((conn, one.domain)))
        resets(world)
    assert removed == [(second, other.domain)]
    assert world.running("lab")


def test_a_lab_whose_reset_was_killed_is_not_replaced_by_a_copy(worlds: Callable[[], World]) -> None:
    world = worlds()
    saves(world)
    for number in range(1, 20):
        world.left = number
        with suppress(Killed):
            resets(world)
        world.left = None
        with pytest.raises(ConflictError, match="There is already a lab 'lab'"):
            copying.clone(ID, ["lab"], world.site, ignore)


def test_copies_are_made(worlds: Callable[[], World]) -> None:
    """All of them, even if some were complete."""
    for number, world in enumerate(killed(worlds, clones, saves, is_cloned)):
        assert all(map(world.running, ("lab", "try-1", "try-2"))), number


def test_a_copy_that_is_complete_stays_if_another_one_failed(worlds: Callable[[], World]) -> None:
    world = worlds()
    saves(world)

    def fill(name: str) -> None:
        if name.startswith("try-2.node-1."):
            raise HostError("Full.")

    world.pool.on_change = fill
    with pytest.raises(HostError, match=r"Full\."):
        clones(world)
    world.pool.on_change = ignore
    assert world.running("try-1")
    before = {uuid: xml for uuid, xml in world.xml.items() if "winlab-try-1." in xml}
    with pytest.raises(ConflictError, match="There is already a lab 'try-1'"):
        clones(world)
    assert world.running("try-2")
    assert before.items() <= world.xml.items()


def test_a_snapshot_is_deleted_with_the_disks_that_it_alone_needs(worlds: Callable[[], World]) -> None:
    for number, world in enumerate(killed(worlds, deletes, deletes_of_a_lab_that_is_gone)):
        rest = [name for name in world.pool.volumes if not name.startswith("base-")]
        assert (snapshots.ids(), rest) == ([], []), number


def test_a_snapshot_is_exported(worlds: Callable[[], World]) -> None:
    for number, world in enumerate(killed(worlds, exports, saves, lambda world: file(world).exists())):
        with archive.opened(file(world)) as whole:
            assert all(sum(map(len, whole.chunks(name))) == row.size for name, row in whole.rows.items())
        assert [path.name for path in file(world).parent.glob("*ready*")] == ["ready.winlab"], number


def test_what_a_killed_export_left_needs_no_space(worlds: Callable[[], World]) -> None:
    world = worlds()
    saves(world)
    copy, space = "lab@ready.node-1.export.qcow2", world.pool.space
    world.pool.put(copy, b"of a killed export")
    world.pool.space = 0

    def make_room(name: str) -> None:
        if name == copy:
            world.pool.space = space

    world.pool.on_delete = make_room
    exports(world)


def test_a_snapshot_is_imported(worlds: Callable[[], World]) -> None:
    new = Id("other", "copy")
    undisturbed = worlds()
    exported(undisturbed)
    imports(undisturbed)
    names = undisturbed.whole(new)
    for number, world in enumerate(killed(worlds, imports, exported, is_imported)):
        assert (snapshots.ids(), world.whole(new)) == ([ID, new], names), number


def test_a_destroy_removes_the_disks_below_a_copy(worlds: Callable[[], World]) -> None:
    """Those of a lab and a snapshot that are gone."""

    def before(world: World) -> None:
        saves(world)
        copying.clone(ID, ["try"], world.site, ignore)
        deletes(world)
        assert not traces.remove("lab", world.hosts, world.site.overlay, lambda *_: None)

    def destroy(world: World) -> None:
        assert not traces.remove("try", world.hosts, world.site.overlay, lambda *_: None)

    for number, world in enumerate(killed(worlds, destroy, before)):
        assert [name for name in world.pool.volumes if not name.startswith("base-")] == [], number


def test_a_destroy_removes_snapshots_that_only_copies_needed(
    worlds: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "YOUNG", timedelta())

    def before(world: World) -> None:
        save.save(ID, world.site, ignore, automatic=True)

    def tidies(world: World) -> None:
        delete.tidy("try", world.hosts, ignore)

    for number, world in enumerate(killed(worlds, tidies, before)):
        assert (snapshots.ids(), world.pool.names("lab@")) == ([], []), number
        assert world.running("lab")


def test_a_destroy_removes_what_a_killed_save_left(worlds: Callable[[], World]) -> None:
    world = worlds()
    world.left = 10
    with pytest.raises(Killed):
        saves(world)
    world.left = None
    assert world.pool.names("lab@") != []
    delete.tidy("other", world.hosts, ignore)
    with snapshots.exclusive(ID) as mark:  # by a winlab that saves it now
        mark.stays = True
        delete.tidy("lab", world.hosts, ignore)
    assert world.pool.names("lab@") != []
    delete.tidy("lab", world.hosts, ignore)
    assert (world.pool.names("lab@"), world.marks()) == ([], [])


def test_a_save_says_that_it_resumes_a_lab(worlds: Callable[[], World]) -> None:
    for number in count(1):
        world = worlds()
        world.left = number
        with pytest.raises(Killed):
            saves(world)
        if set(world.states.values()) == {"suspended"}:
            break
    world.left = None
    said: list[Event] = []
    save.save(ID, world.site, said.append)
    (note,) = [one.text for one in said if isinstance(one, Note)]
    assert note == "A save was killed while the lab was paused. These run again: controller-1, node-1."


def test_a_lab_that_the_user_suspended_is_not_saved(worlds: Callable[[], World]) -> None:
    world = worlds()
    world.states = dict.fromkeys(world.states, "suspended")
    for _ in range(2):
        with pytest.raises(GuestError, match="controller-1 is suspended"):
            saves(world)
    assert set(world.states.values()) == {"suspended"}


def test_a_snapshot_of_another_account_stays(worlds: Callable[[], World]) -> None:
    world = worlds()
    theirs = ("lab@ready.node-1.state", "lab@snapshot-1.node-1.state", "lab@clone-1.node-1.state")
    for name in theirs:
        world.pool.put(name, b"theirs")
    with pytest.raises(ConflictError, match="There is already a snapshot 'lab@ready'"):
        saves(world)
    own = Snapshots("lab", world.site)
    assert own.save().id == Id("lab", "snapshot-2")
    own.clone(["try"])
    assert {Id("lab", "snapshot-2"), Id("lab", "clone-2")} == {*snapshots.ids()}
    assert all(world.pool.volumes[name] == b"theirs" for name in theirs)


def test_a_save_without_a_name_takes_that_of_a_killed_one(worlds: Callable[[], World]) -> None:
    world = worlds()
    own = Snapshots("lab", world.site)
    world.left = 10
    with pytest.raises(Killed):
        own.save()
    world.left = None
    assert own.save().id == Id("lab", "snapshot-1")
    assert world.running("lab")


@pytest.mark.parametrize("answers", [False, True])
def test_what_can_not_be_removed_is_left_to_the_next_command(worlds: Callable[[], World], answers: bool) -> None:
    world = worlds()

    def fail(*_: Any) -> None:
        if not answers:
            patch.setattr(remains, "discard", fail)
        raise HostError("libvirt does not answer.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(save.machines, "save", fail)
        with pytest.raises(HostError):
            saves(world)
    assert bool(world.marks()) is bool(world.pool.names("lab@")) is not answers
    saves(world)
    assert world.marks() == []
    assert world.running("lab")


@pytest.mark.parametrize("snapshot", [None, "ready"])
@pytest.mark.parametrize("name", ["lab", "other", "no--name"])
def test_nothing_is_saved_or_copied_if_a_copy_can_not_have_its_name(
    worlds: Callable[[], World], name: str, snapshot: str | None
) -> None:
    world = worlds()
    world.pool.put("other.node-1.disk.qcow2", b"another lab's")
    saves(world)
    before = dict(world.pool.volumes)
    with pytest.raises((ConflictError, UsageError)):
        Snapshots("lab", world.site).clone(["try", name], snapshot)
    assert (world.pool.volumes, snapshots.ids(), LabFolder("try").path.exists()) == (before, [ID], False)
    assert world.running("lab")


def test_copies_made_together_need_memory_for_all_of_them(worlds: Callable[[], World]) -> None:
    world = worlds()
    saves(world)
    asked: list[tuple[str, float]] = []

    def require(plan: Plan, _hosts: object, shares: object = None, copies: int = 1) -> None:
        asked.append((plan.lab, copies))
        if copies > 1:
            raise HostError("There is not enough memory.")

    with pytest.MonkeyPatch.context() as patch:  # it ends before the world's own
        patch.setattr(room, "require_for", require)
        with pytest.raises(HostError):
            clones(world)
    assert (asked, LabFolder("try-1").path.exists()) == ([("try-1", 2)], False)


def test_a_reset_without_a_name_takes_what_the_user_saved_last(worlds: Callable[[], World]) -> None:
    """Not what 'clone' saved for its copies."""
    world = worlds()
    own = Snapshots("lab", world.site)
    own.clone(["try"])
    with pytest.raises(NotFoundError, match="has no snapshot"):
        own.reset()
    saves(world)
    own.clone(["again"])
    assert own.reset().snapshot == ID


@pytest.mark.parametrize("make", [saves, imports])
def test_a_record_is_written_when_the_disk_has_the_volumes(
    worlds: Callable[[], World], make: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, a record without its volumes would be a snapshot that can't be used."""
    world = worlds()
    if make is imports:
        saves(world)
        exports(world)
    written: list[bool] = []
    monkeypatch.setattr(snapshots, "write", lambda _: written.append(world.pool.on_disk == world.pool.volumes))
    make(world)
    assert written == [True]
