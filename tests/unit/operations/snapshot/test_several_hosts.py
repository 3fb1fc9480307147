"""Snapshots of a lab on two hypervisors: saved, put back, copied, brought elsewhere, deleted; each may be killed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import disks
import placing
import pytest
import saved
from mortal import Killed, World
from saved import ID

from winlab import snapshots
from winlab.adapters.vm import domains, power, resources
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Silent
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.hosts import HostStock
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError, WinlabError
from winlab.events import Event, Note, ignore
from winlab.lab_folder import LabFolder
from winlab.operations import recorded, room
from winlab.operations.snapshot import adopted, compatible, copying, delete, listing, required, save, transfer, where
from winlab.snapshots import Id, Snapshot

FIRST, SECOND = "hypervisor-1", "hypervisor-2"
OFF = Silent(SECOND, HostError("libvirt does not answer.", why="No route to host"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    disks.answer(monkeypatch)
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(resources, "of_all", lambda *_: placing.hosts(16, 16))
    return World(monkeypatch, second=True)


@pytest.fixture
def ready(world: World) -> Snapshot:
    return save.save(ID, world.site, ignore)


def turn_off(world: World) -> None:
    """The second hypervisor does not answer any more."""
    world.site.each = Hypervisors(world.hosts.each[:1], (OFF,))


def on(world: World, lab: str) -> dict[str, str]:
    """Where the machines of a lab are."""
    return {one.tag.node: one.hypervisor for one in world.hosts.machines(lab)}


def notes(told: list[Event]) -> str:
    return " ".join(one.text for one in told if isinstance(one, Note))


def clone(world: World, on: str | None = None, *labs: str, tell: Any = ignore) -> list[copying.Copied]:
    return copying.clone(ID, labs or ["try"], world.site, tell, on=on)


def test_each_host_keeps_its_own_part(world: World, ready: Snapshot) -> None:
    first, second = ({name.split(".")[1] for name in pool.names("lab@ready.")} for pool in world.pools)
    assert (first, second) == ({"controller-1"}, {"node-1"})
    assert world.running("lab")
    (row,) = listing.every(world.site)
    assert [part.hypervisor for part in row.parts] == [FIRST, SECOND]
    assert (row.disk, row.memory) == (sum(p.disk or 0 for p in row.parts), sum(p.memory or 0 for p in row.parts))
    assert (row.problem, row.unknown) == ("", ())


def test_copies_are_beside_the_snapshot(world: World, ready: Snapshot) -> None:
    told: list[Event] = []
    clone(world, None, "try-1", "try-2", tell=told.append)
    copying.reset(ID, "lab", world.site, ignore)
    for lab in ("lab", "try-1", "try-2"):
        assert on(world, lab) == {"controller-1": FIRST, "node-1": SECOND}
        assert world.running(lab)
    assert "is on" not in notes(told)
    copying.clone(save.save(Id("try-1", "more"), world.site, ignore).id, ["again"], world.site, ignore)
    assert on(world, "again") == on(world, "lab")
    assert world.idle() == set()


def test_a_copy_on_one_host_gets_what_it_needs(world: World, ready: Snapshot) -> None:
    told: list[Event] = []
    world.pools[1].delete(saved.CD)
    del world.pools[1].digests[saved.CD]
    (done,) = clone(world, SECOND, tell=told.append)
    assert on(world, "try") == {"controller-1": SECOND, "node-1": SECOND}
    assert (world.running("try"), done.shared) == (True, False)
    assert f"the snapshot is on '{FIRST}', and the copy on '{SECOND}'" in notes(told)
    assert world.pools[0].names("try.") == []
    assert world.pools[1].volumes[saved.CD] == b"the CD"
    assert world.pools[1].below["try.controller-1.disk-2.qcow2"] == "try.controller-1.disk.qcow2"
    disk = world.pools[1].volumes["try.controller-1.disk.qcow2"]
    assert b"base" in disk, "with what it is based on"
    plan = recorded.read(LabFolder("try")).plan
    assert plan.placed == {"controller-1": "chosen with --on", "node-1": "beside the disks of 'lab'"}
    assert plan.hosts.keys() == {SECOND}
    copying.reset(ID, "try", world.site, ignore)
    assert (on(world, "try"), world.running("try")) == ({"controller-1": SECOND, "node-1": SECOND}, True)


def test_a_killed_copy_is_completed_elsewhere_by_the_same_command(tmp_path: Path) -> None:
    number = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disks.answer(patch)
            patch.setenv("WINLAB_STATE", str(tmp_path / str(number) / "state"))
            patch.setenv("WINLAB_CACHE", str(tmp_path / str(number) / "cache"))
            world = World(patch, second=True)
            patch.setattr(resources, "of_all", lambda *_: placing.hosts(16, 16))
            save.save(ID, world.site, ignore)
            world.left = number
            try:
                clone(world, FIRST)
            except Killed:
                world.left = None
                if not world.running("try") or (LabFolder("try").path / required.COPYING).exists():
                    clone(world, FIRST)
            else:
                assert number > 3
                return
            assert (world.running("try"), world.marks(), world.idle()) == (True, [], set()), number
            assert on(world, "try") == {"controller-1": FIRST, "node-1": FIRST}, number
        number += 1


@pytest.mark.parametrize("verb", ["save", "reset"])
def test_a_killed_save_or_reset_is_completed_by_the_same_command(tmp_path: Path, verb: str) -> None:
    number = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            disks.answer(patch)
            patch.setenv("WINLAB_STATE", str(tmp_path / str(number) / "state"))
            patch.setenv("WINLAB_CACHE", str(tmp_path / str(number) / "cache"))
            world = World(patch, second=True)

            def run(world: World = world) -> None:
                if verb == "save":
                    save.save(ID, world.site, ignore)
                else:
                    copying.reset(ID, "lab", world.site, ignore)

            if verb == "reset":
                save.save(ID, world.site, ignore)
            world.left = number
            try:
                run()
            except Killed:
                world.left = None
                with pytest.raises(ConflictError) if verb == "save" and ID in snapshots.ids() else nullcontext():
                    run()
            else:
                return
            assert (world.running("lab"), world.marks(), world.idle()) == (True, [], set()), number
            assert (snapshots.ids(), on(world, "lab")) == ([ID], {"controller-1": FIRST, "node-1": SECOND}), number
        number += 1


def test_a_node_that_was_moved_since_has_one_machine_when_it_starts(
    world: World, ready: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ready.plan.node("node-1")
    old = [domains.Machine(node.domain, "off", world.tags[node.uuid])]  # at its place when the lab is put back
    there, remove = domains.machines, domains.remove

    def found(conn: Any, lab: str | None = None) -> list[Any]:
        return [*there(conn, lab), *(old if conn.pool is world.pools[0] else [])]

    def removed(conn: Any, machine: Any) -> bool:
        if conn.pool is not world.pools[0]:
            return remove(conn, machine)
        assert (machine.tag.node, world.places[node.uuid], world.states[node.uuid]) == ("node-1", world.pools[1], "off")
        old.clear()
        return True

    monkeypatch.setattr(domains, "machines", found)
    monkeypatch.setattr(domains, "remove", removed)
    copying.reset(ID, "lab", world.site, ignore)
    assert (old, world.running("lab")) == ([], True)


def full(free: int) -> Any:
    def require(plan: object, hosts: object, shares: object = None, copies: int = 1) -> None:
        if copies > free:
            raise HostError("The hypervisor is full.")

    return require


def test_nodes_whose_host_is_full_are_placed_on_another_one(
    world: World, ready: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of the second copy; the snapshot's other node fits."""
    monkeypatch.setattr(room, "require_for", full(1))
    monkeypatch.setattr(resources, "of_all", lambda *_: (placing.host(FIRST, 16), little(SECOND, 1)))
    told: list[Event] = []
    copying.clone(ID, ["try-1", "try-2"], world.site, told.append)
    assert on(world, "try-1") == {"controller-1": FIRST, "node-1": SECOND}
    assert on(world, "try-2") == {"controller-1": FIRST, "node-1": FIRST}
    why = f"'{SECOND}', where its memory is, has no room; the only one with room"
    assert f"'node-1' is on '{FIRST}': {why}." in notes(told)
    assert recorded.read(LabFolder("try-2")).plan.placed["node-1"] == why


def little(name: str, mib: int) -> HostStock:
    return placing.host(name).model_copy(update={"free_mib": mib})


def test_a_copy_is_refused_if_all_are_full(world: World, ready: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "require_for", full(0))
    monkeypatch.setattr(resources, "of_all", lambda *_: (little(FIRST, 0), little(SECOND, 0)))
    with pytest.raises(HostError, match="No hypervisor has room for a copy of 'controller-1'") as caught:
        clone(world)
    assert f"{SECOND}: 0.0 of 32.0 GiB of memory free" in caught.value.why
    with pytest.raises(HostError, match=f"'controller-1' can't be on '{SECOND}'"):
        clone(world, SECOND)
    assert on(world, "try") == {}


def test_a_drained_hypervisor_gets_no_copies(world: World, ready: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(world.site), "drained", lambda _: frozenset({SECOND}))
    told: list[Event] = []
    clone(world, None, tell=told.append)
    assert on(world, "try") == {"controller-1": FIRST, "node-1": FIRST}
    assert f"'{SECOND}', where its memory is, takes no new nodes" in notes(told)
    with pytest.raises(HostError, match=f"can't be on '{SECOND}'"):
        clone(world, SECOND, "again")


@pytest.mark.parametrize("reason", ["unknown", "off", "tunnel", "QEMU"])
def test_a_host_that_copies_can_not_be_on_is_refused_before_anything_is_touched(
    world: World, ready: Snapshot, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    name, third = SECOND, Hypervisor("hypervisor-3", world.hosts.each[0].conn, lambda: world.pool, MachineFacts)
    kind: type[WinlabError] = UsageError
    if reason == "unknown":
        name, said = "big", "The site has no hypervisor 'big'"
    elif reason == "off":
        world.site.each = Hypervisors(world.hosts.each, (Silent("big", OFF.error),))
        name, kind, said = "big", HostError, "The hypervisor 'big' does not answer, and --on names 'big'"
    elif reason == "tunnel":
        facts = world.site.host_facts.model_copy(update={"tunnel_mtu": 1400})
        monkeypatch.setattr(type(world.site), "host_facts", facts)
        said = f"Machines of the lab 'lab' can't be on '{SECOND}'"
    else:
        world.site.each = Hypervisors((*world.hosts.each, third))
        other = saved.EMULATOR.model_copy(update={"version": "10.0.2"})
        monkeypatch.setattr(compatible, "_of", lambda host: other if host is third else saved.EMULATOR)
        name, kind, said = third.name, ConflictError, f"can't be restored on '{third.name}'"
    before = [dict(pool.volumes) for pool in world.pools]
    with pytest.raises(kind, match=said):
        clone(world, name)
    with pytest.raises(kind, match=said):
        where.require_possible(name, "lab", world.site, world.site.each)
    assert [dict(pool.volumes) for pool in world.pools] == before
    assert not LabFolder("try").path.exists()


def test_each_node_is_restored_by_what_saved_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = saved.EMULATOR.model_copy(update={"version": "10.0.2"})
    monkeypatch.setattr(compatible, "_of", lambda host: other if host.name == SECOND else saved.EMULATOR)
    made = save.save(ID, world.site, ignore)
    assert (made.emulator, made.nodes["controller-1"].emulator) == (saved.EMULATOR, None)
    assert made.emulator_of("node-1") == other
    assert snapshots.read(ID) == made
    clone(world)
    with pytest.raises(ConflictError, match="can't be restored") as caught:
        clone(world, FIRST, "far")
    assert caught.value.why == f"QEMU was 10.0, and is 7.2 on {FIRST}."


def test_the_record_of_a_lab_on_equal_hosts_is_as_before(ready: Snapshot) -> None:
    assert "emulator" not in ready.model_dump()["nodes"]["node-1"]


def test_a_host_that_does_not_answer_is_named_before_anything_is_touched(world: World, ready: Snapshot) -> None:
    turn_off(world)
    before = [dict(pool.volumes) for pool in world.pools]
    for verb in (
        lambda: save.save(Id("lab", "late"), world.site, ignore),
        lambda: copying.reset(ID, "lab", world.site, ignore),
        lambda: clone(world),
        lambda: transfer.export(ID, LabFolder("lab").path.parent / "file", world.site, ignore),
    ):
        with pytest.raises(HostError, match=f"'{SECOND}' does not answer"):
            verb()
    assert [dict(pool.volumes) for pool in world.pools] == before
    assert (world.running("lab"), snapshots.ids(), LabFolder("try").path.exists()) == (True, [ID], False)


def test_what_a_host_has_that_does_not_answer_is_unknown(world: World, ready: Snapshot) -> None:
    turn_off(world)
    (row,) = listing.every(world.site)
    assert (row.record, row.problem, row.unknown) == (ready, "", (SECOND,))
    assert [(part.hypervisor, part.disk is None) for part in row.parts] == [(FIRST, False), (SECOND, True)]
    world.site.each = Hypervisors(world.hosts.each[:1])
    assert listing.one(ID, world.site).problem == f"its volumes are gone from '{SECOND}'"


def test_delete_removes_what_it_reaches_and_the_rest_later(world: World, ready: Snapshot) -> None:
    turn_off(world)
    for word in ("has", "may have"):
        with pytest.raises(HostError, match=f"'lab@ready' {word} volumes there") as caught:
            delete.delete(ID, world.site, ignore)
        assert "Run 'winlab snapshot delete lab@ready' again when it answers." in caught.value.cure
    assert (world.pools[0].names("lab@"), snapshots.ids()) == ([], [])
    assert world.pools[1].names("lab@") != []
    world.site.each = world.hosts
    assert any(name.startswith("lab@ready.node-1.") for name in delete.delete(ID, world.site, ignore))
    assert (world.pools[1].names("lab@"), world.marks()) == ([], [])
    with pytest.raises(NotFoundError):
        delete.delete(ID, world.site, ignore)


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_all_parts_are_exported_to_one_file_and_imported_on_one_host(
    world: World, ready: Snapshot, tmp_path: Path, name: str
) -> None:
    file, new = tmp_path / "ready.winlab", Id("other", "copy")
    transfer.export(ID, file, world.site, ignore)
    got = transfer.import_file(file, str(new), world.site, ignore, on=name)
    pool, rest = world.pools if name == FIRST else world.pools[::-1]
    assert {one.split(".")[1] for one in pool.names(f"{new}.")} == {"controller-1", "node-1"}
    assert rest.names(f"{new}.") == []
    assert {node.hypervisor for node in got.plan.nodes} == {name}
    assert got.plan.hosts.keys() == (set() if name == FIRST else {SECOND})
    assert got.plan.network.mtu == 1442
    assert snapshots.read(new) == got
    copying.clone(new, ["try"], world.site, ignore)
    assert (on(world, "try"), world.running("try")) == ({"controller-1": name, "node-1": name}, True)


def test_an_import_is_refused_where_tunnels_do_not_take_its_packets(
    world: World, ready: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer.export(ID, tmp_path / "file", world.site, ignore)
    monkeypatch.setattr(type(world.site), "host_facts", world.site.host_facts.model_copy(update={"tunnel_mtu": 1300}))
    with pytest.raises(UsageError, match="can't be on"):
        transfer.import_file(tmp_path / "file", "other@copy", world.site, ignore, on=SECOND)
    transfer.import_file(tmp_path / "file", "other@copy", world.site, ignore)


def test_a_record_that_was_adopted_is_moved_with_its_facts(ready: Snapshot, world: World) -> None:
    moved = adopted.moved(ready, replace(world.hosts.each[1], read_facts=lambda: MachineFacts(chassis="two")))
    assert moved.plan.hypervisors == {SECOND: MachineFacts(chassis="two")}


def test_each_host_writes_to_its_disk_before_the_record_is_written(world: World) -> None:
    save.save(ID, world.site, ignore)
    assert [pool.on_disk for pool in world.pools] == [pool.volumes for pool in world.pools]


def test_a_host_that_can_not_be_flushed_leaves_no_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise HostError("ssh can't connect to 'host2'.")

    monkeypatch.setattr(world.pools[1], "flush", fail)
    with pytest.raises(HostError, match="ssh"):
        save.save(ID, world.site, ignore)
    assert (snapshots.ids(), [pool.names("lab@") for pool in world.pools]) == ([], [[], []])
    assert world.running("lab")


def test_a_host_that_is_lost_while_all_are_paused_continues_with_the_next_save(world: World) -> None:
    far = world.plan.node("node-1").uuid
    with pytest.MonkeyPatch.context() as patch:

        def lost(work: Any) -> Any:
            def call(conn: Any, *args: Any) -> None:
                if conn.pool is world.pools[1]:
                    raise HostError("The connection to libvirt was lost.")
                work(conn, *args)

            return call

        def refresh() -> None:
            if world.states[far] == "suspended":
                raise HostError("The connection to libvirt was lost.")

        patch.setattr(machines, "save", lost(machines.save))
        patch.setattr(power, "resume", lost(power.resume))
        patch.setattr(world.pools[1], "refresh", refresh)
        with pytest.raises(HostError, match="lost"):
            save.save(ID, world.site, ignore)
    assert {uuid: state for uuid, state in world.states.items() if state != "running"} == {far: "suspended"}
    turned_off = world.site.each
    turn_off(world)
    with pytest.raises(HostError, match=f"'{SECOND}' does not answer"):
        save.save(ID, world.site, ignore)
    world.site.each = turned_off
    told: list[Event] = []
    save.save(ID, world.site, told.append)
    assert "These run again: node-1." in notes(told)
    assert (world.running("lab"), world.marks()) == (True, [])
