"""The volumes that a node takes along when it moves, in their order; and that none is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winlab.errors import ConflictError
from winlab.events import Quiet
from winlab.steps import moves
from winlab.steps.moves import Parts


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


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in its order."""
    found: list[str] = []
    monkeypatch.setattr(moves.durable, "flush", lambda _hosts: found.append("flush"))
    monkeypatch.setattr(moves.disks, "collect", lambda *_: found.append("collect"))
    monkeypatch.setattr(moves.domains, "set_autostart", lambda *_, **__: None)
    monkeypatch.setattr(moves.domains, "state", lambda *_: "off")
    monkeypatch.setattr(moves.domains, "remove", lambda *_: found.append("remove"))
    monkeypatch.setattr(moves.definitions, "with_secrets", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.domain_file, "domain_xml", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.machine_xml, "rehosted", lambda *_: "<domain/>")
    monkeypatch.setattr(moves.migration, "define", lambda *_: None)
    monkeypatch.setattr(moves, "discard", lambda _move: None)
    monkeypatch.setattr(moves, "parts", lambda *_: Parts({}, (), ("base-x.qcow2",), ()))
    monkeypatch.setattr(moves, "_carry", lambda *_: found.append("carry"))
    return found


def moving(*, has_base: bool = True) -> Any:
    """A move of 'node-1'; *has_base*: the new place has its image still."""
    pool = SimpleNamespace(is_complete=lambda _name: has_base, folder=None)
    return SimpleNamespace(
        at=lambda kind: kind("lab", "node-1"), lab=SimpleNamespace(name="lab"), node=SimpleNamespace(name="node-1"),
        plan=SimpleNamespace(node=lambda _name: None), source=SimpleNamespace(conn=None),
        target=SimpleNamespace(conn=None, name="hypervisor-2", pool=pool), volumes=lambda _host: [],
        settle_port=lambda *_: None,
    )  # fmt: skip


def test_the_old_machine_and_volumes_go_once_the_new_ones_are_on_the_disk(done: list[str]) -> None:
    moves.cold(moving(), stops=False).run(Quiet())
    moves.settle(moving(), lambda: done.append("record"), autostart=False).run(Quiet())
    assert done == ["carry", "flush", "remove", "record", "flush", "collect"]


def test_the_old_machine_stays_if_the_image_is_pruned_at_the_new_place(done: list[str]) -> None:
    with pytest.raises(ConflictError, match="removed from 'hypervisor-2' meanwhile"):
        moves.cold(moving(has_base=False), stops=False).run(Quiet())
    assert "remove" not in done
