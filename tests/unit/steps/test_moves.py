"""The volumes that a node takes along when it moves, in their order."""

from __future__ import annotations

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
