"""Which processes are killed, what they leave, and which differences of the host count."""

from __future__ import annotations

from pathlib import Path

import pytest
from survive import targets
from survive.moments import Point
from survive.sample import choose
from survive.traces import left


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    commands = {
        11: ["ovsdb-server: monitoring pid 12 (healthy)"],
        12: ["ovsdb-server", "--remote=punix:/run/ovn/ovnnb_db.sock", "/var/lib/ovn/ovnnb_db.db"],
        13: ["ovsdb-server", "--remote=punix:/run/ovn/ovnsb_db.sock", "/var/lib/ovn/ovnsb_db.db"],
        14: ["/usr/sbin/libvirtd", "-d"],
        15: ["vi", "libvirtd"],
        16: ["/usr/bin/qemu-system-x86_64", "-name", "guest=winlab-survive.node-1,debug-threads=on"],
        17: ["/usr/bin/qemu-system-x86_64", "-name", "guest=winlab-survive2.node-1,debug-threads=on"],
        18: [],
    }
    for pid, words in commands.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (tmp_path / str(pid) / "environ").write_bytes(b"A=1\0SURVIVE_MARK=m-1\0" if pid == 16 else b"A=1\0")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "pids"),
    [
        ("ovsdb-server-nb", [12]),
        ("ovsdb-server", []),
        ("libvirtd", [14]),
        ("ovn-northd", []),
        ("guest survive", [16]),
        ("guest survive2", [17]),
    ],
)
def test_only_the_target_is_killed(proc: Path, target: str, pids: list[int]) -> None:
    assert targets.find(target, proc) == pids


def test_processes_of_a_command_are_known_by_their_mark(proc: Path) -> None:
    (row,) = targets.marked("m-1", proc)
    assert row[0] == 16
    assert targets.marked("m-2", proc) == []


ROW = 'NAT 12 [["winlab", "{}"], ["winlab-plan", "1"]]'
QUIET = {kind: frozenset[str]() for kind in ("volumes", "links", "rows", "domains", "/tmp")}
BUSY = {**QUIET, "rows": frozenset({ROW.format("field")})}


def test_differences_are_named() -> None:
    before, after = ({**QUIET, "volumes": frozenset({name})} for name in ("survive.n.disk", "survive.n.seed"))
    assert left(before, after, "survive") == ["+ volumes: survive.n.seed", "- volumes: survive.n.disk"]
    assert left(before, before, "survive") == []


@pytest.mark.parametrize(
    ("kind", "row", "counts"),
    [
        ("volumes", "field.node-1.disk.qcow2", False),
        ("volumes", "survive.node-1.disk.qcow2", True),
        ("volumes", "golden-1a2b.machine.disk.qcow2", True),  # the lab's own golden image is made in it
        ("domains", "winlab-field.node-1", False),
        ("domains", "winlab-survive.node-1", True),
        ("rows", ROW.format("survive"), True),
        ("rows", "DNS 13 []", False),
        ("links", "vnet7", False),
        ("/tmp", "tmpabc", False),
    ],
)
def test_changes_by_others_do_not_count(kind: str, row: str, counts: bool) -> None:
    assert bool(left(BUSY, {**BUSY, kind: BUSY[kind] | {row}}, "survive")) is counts


def test_snapshots_are_their_labs() -> None:
    volumes = {"survive@new.n.memory", "copy--new.n.disk.qcow2", "copy@new.n.disk.qcow2"}
    after = {**QUIET, "volumes": frozenset(volumes), "links": frozenset({"vnet7"})}
    assert left(QUIET, after, "survive", "copy") == ["+ volumes: " + name for name in sorted(volumes)] + [
        "+ links: vnet7"
    ]
    assert left(QUIET, after, "survive") == ["+ volumes: survive@new.n.memory"]


@pytest.mark.parametrize(("kind", "row"), [("links", "vnet7"), ("/tmp", "tmpabc"), ("rows", "DNS 13 []")])
def test_everything_counts_on_a_quiet_host(kind: str, row: str) -> None:
    assert left(QUIET, {**QUIET, kind: frozenset({row})}, "survive") == [f"+ {kind}: {row}"]


def test_a_seed_chooses_the_same_points_again() -> None:
    steps = ["network", "credentials", "disk n"]
    assert choose("2026-11-23", steps, 3) == choose("2026-11-23", steps, 3)
    assert len({tuple(choose(str(day), steps, 3)) for day in range(20)}) > 5
    assert all(isinstance(point, Point) and point.step in steps for point in choose("x", steps, 3))
