"""The volumes that a node takes along when it moves, in their order; and that none is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winlab.errors import ConflictError
from winlab.events import Quiet
from winlab.steps import moves
from winlab.steps.moves import Parts

LOWER, UPPER = "lab.node-1.disk.qcow2", "lab.node-1.disk-2.qcow2"


def test_volumes_are_sorted_by_whose_they_are() -> None:
    found = Parts.sort(
        "lab",
        {
            ("lab.node-1.disk-2.qcow2", "lab.node-1.disk.qcow2", "base-debian-13-ab.qcow2"): True,
            ("lab.node-1.store.qcow2", "base-store-cd.qcow2"): True,
            ("lab.node-1.seed.iso",): False,
            ("base-payload-ef.iso",): False,
            ("lab.load-linux.iso",): False,
        },
    )
    assert found.disks == {
        "lab.node-1.disk-2.qcow2": ("lab.node-1.disk.qcow2",),
        "lab.node-1.store.qcow2": (),
    }  # fmt: skip
    assert found.own == (
        "lab.node-1.disk.qcow2", "lab.node-1.disk-2.qcow2", "lab.node-1.store.qcow2", "lab.node-1.seed.iso",
        "lab.load-linux.iso",
    )  # fmt: skip
    assert found.bases == ("base-debian-13-ab.qcow2", "base-store-cd.qcow2", "base-payload-ef.iso")
    assert (found.frozen, found.others) == (("lab.node-1.disk.qcow2",), ())


def test_what_belongs_to_a_snapshot_or_a_user_is_named() -> None:
    found = Parts.sort(
        "copy",
        {
            ("copy.node-1.disk.qcow2", "lab@one.node-1.disk.qcow2", "base-debian-13-ab.qcow2"): True,
            ("/home/ann/mine.iso",): False,
        },
    )
    assert found.others == ("lab@one.node-1.disk.qcow2", "/home/ann/mine.iso")


def test_a_medium_over_its_base_is_only_read() -> None:
    found = Parts.sort("lab", {("lab.win-1.media.qcow2", "base-medium-ab.iso"): False})
    assert (found.disks, found.read, found.bases) == ({}, ("lab.win-1.media.qcow2",), ("base-medium-ab.iso",))


HELD = (LOWER,)  # at the new place: a snapshot is based on it


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in its order."""
    found: list[str] = []
    monkeypatch.setattr(moves.disks, "collect", lambda *_: found.append("collect"))
    monkeypatch.setattr(moves.power, "set_autostart", lambda *_, **__: None)
    monkeypatch.setattr(moves.domains, "state", lambda *_: "off")
    monkeypatch.setattr(moves.domains, "remove", lambda *_: found.append("remove"))
    monkeypatch.setattr(moves.definitions, "with_secrets", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.domain_file, "domain_xml", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.machine_xml, "rehosted", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.migration, "define", lambda *_: None)
    monkeypatch.setattr(moves, "discard", lambda _move: None)
    monkeypatch.setattr(moves, "parts", lambda *_: Parts({UPPER: (LOWER,)}, (), ("base-x.qcow2",), ()))
    monkeypatch.setattr(moves.disks, "unused", lambda _host, names: [name for name in names if name not in HELD])
    monkeypatch.setattr(moves.carried, "carry", lambda name, *_: found.append(f"carry {name}"))
    return found


def moving(done: list[str], *, has_base: bool = True, there: tuple[str, ...] = (), differs: bool = False) -> Any:
    """A move of 'node-1'.

    :param done: what is done there.
    :param has_base: the new place has its image still.
    :param there: the node's volumes at the new place; those in HELD stay there. *differs*: they are others.
    """

    def pool(names: tuple[str, ...], digest: str) -> Any:
        return SimpleNamespace(
            is_complete=lambda _name: has_base, folder=None, names=lambda: [*names], exists=names.__contains__,
            digest=lambda *_: digest, flush=lambda: done.append("flush"),
        )  # fmt: skip

    source = SimpleNamespace(conn=None, pool=pool((LOWER, UPPER), "a"))
    target = SimpleNamespace(conn=None, name="hypervisor-2", pool=pool(there, "b" if differs else "a"))
    return SimpleNamespace(
        at=lambda kind: kind("lab", "node-1"), lab=SimpleNamespace(name="lab"), node=SimpleNamespace(name="node-1"),
        plan=SimpleNamespace(node=lambda _name: None), source=source, target=target,
        volumes=lambda host: [*host.pool.names()], settle_port=lambda *_: None,
    )  # fmt: skip


def test_the_old_machine_and_volumes_go_once_the_new_ones_are_on_the_disk(done: list[str]) -> None:
    moves.cold(moving(done), stops=False).run(Quiet())
    moves.settle(moving(done), lambda: done.append("record"), autostart=False).run(Quiet())
    assert done == [f"carry {LOWER}", f"carry {UPPER}", "flush", "remove", "record", "flush", "collect"]


def test_the_old_machine_stays_if_the_image_is_pruned_at_the_new_place(done: list[str]) -> None:
    with pytest.raises(ConflictError, match="removed from 'hypervisor-2' meanwhile"):
        moves.cold(moving(done, has_base=False), stops=False).run(Quiet())
    assert "remove" not in done


def test_a_disk_that_a_snapshot_at_the_new_place_needs_is_not_replaced(done: list[str]) -> None:
    moves.cold(moving(done, there=(LOWER,)), stops=False).run(Quiet())
    assert done == [f"carry {UPPER}", "flush", "remove"]
    done.clear()
    with pytest.raises(ConflictError, match=f"a snapshot or a machine there needs '{LOWER}'"):
        moves.cold(moving(done, there=(LOWER,), differs=True), stops=False).run(Quiet())
    with pytest.raises(ConflictError, match=f"a snapshot or a machine there needs '{LOWER}'"):
        moves.require_free(moving(done, there=(LOWER,)), Parts({LOWER: ()}, (), (), ()))  # made again elsewhere
    assert done == []


@pytest.mark.parametrize(
    ("here", "there", "arrived", "cold", "kept"),
    [
        ("off", "running", True, False, "there"),
        ("off", "off", True, False, "there"),  # it moved, ran there, and was shut down
        ("paused", "off", True, False, "there"),
        ("paused", "paused", False, False, "here"),  # libvirt had not completed the move
        ("running", "off", True, False, "here"),
        ("off", "off", True, True, "here"),
    ],
)
def test_of_two_machines_the_one_counts_that_ran_last(
    monkeypatch: pytest.MonkeyPatch, here: str, there: str, arrived: bool, cold: bool, kept: str
) -> None:
    gone: list[str] = []
    move = moving(done)
    move.source.conn, move.target.conn = "here", "there"
    states = {"here": here, "there": there}
    monkeypatch.setattr(moves.migration, "await_idle", lambda *_: True)
    monkeypatch.setattr(moves.migration, "has_arrived", lambda *_: arrived)
    monkeypatch.setattr(moves.domains, "state", lambda conn, _node: states[conn])
    monkeypatch.setattr(moves.domains, "find", lambda *_: object())
    monkeypatch.setattr(moves.domains, "remove", lambda conn, _node: gone.append(conn))
    monkeypatch.setattr(moves.power, "resume", lambda *_: None)
    monkeypatch.setattr(moves.power, "set_autostart", lambda *_, **__: None)
    monkeypatch.setattr(moves.disks, "collect", lambda *_: [])
    moves.recover(move, cold=cold)
    assert gone == ["here" if kept == "there" else "there"]
    gone.clear()
    move.before = None
    assert moves.put_back(move, autostart=False, cold=cold, starts=False) == (kept == "here")
    assert gone == (["there"] if kept == "here" else [])
