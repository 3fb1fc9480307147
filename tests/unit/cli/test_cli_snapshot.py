"""The commands of snapshots: what is passed on, what is refused, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import results
import saved
from commands import ran
from pools import MemoryPool

from winlab.lab_snapshots import Copied, Listed, Snapshots
from winlab.operations.snapshot.listing import Part
from winlab.snapshots import Id

PARTS = (Part("hypervisor-1", 3 << 20, 1 << 20), Part("hypervisor-2", None, None))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command has made from snapshots."""
    rows: list[dict[str, Any]] = []

    def create_from(own: Snapshots, name: str, spec: object, **named: Any) -> Copied:
        rows.append({"name": name, "spec": spec, "fresh": named["fresh_credentials"], "mirror": named["origin"].mirror})
        return Copied(own._lab, Id("lab", "ready"), 0.7, 2.5, shared=True, fresh_credentials=named["fresh_credentials"])

    monkeypatch.setattr(Snapshots, "create_from", create_from)
    return rows


@pytest.mark.parametrize("fresh", [False, True])
def test_create_from_a_snapshot_is_a_clone(made: list[dict[str, Any]], fresh: bool) -> None:
    done = ran(
        "create",
        "--from",
        "lab@ready",
        "--lab",
        "try",
        "--mirror",
        "https://m",
        *(["--fresh-credentials"] if fresh else []),
    )
    assert made == [{"name": "lab@ready", "spec": None, "fresh": fresh, "mirror": "https://m"}]
    assert "The lab 'try' is as in 'lab@ready': it ran after 0.7 s, and is Ready after 2.5 s." in done.stdout
    assert ("It has its own credentials." in done.stdout) is fresh


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--from", "lab@ready", "--locked"), "can't be used with --from: --locked."),
        (("--from", "lab@ready", "--until", "guests"), "can't be used with --from: --until guests."),
        (("--from", "lab@ready", "--kubelet", "mine"), "can't be used with --from: programs of your own."),
        (("--fresh-credentials",), "'--fresh-credentials' can't be used without --from"),
    ],
)
def test_flags_without_a_use_are_refused(made: list[dict[str, Any]], words: tuple[str, ...], why: str) -> None:
    done = ran("create", "--lab", "try", *words)
    assert (done.exit_code, made) == (2, [])
    assert why in done.stderr


def test_json_has_what_the_snapshot_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    row = Listed(
        Id("lab", "ready"), saved.snapshot(MemoryPool()), "", disk=3 << 20, memory=1 << 20, copies=("try",), parts=PARTS
    )
    monkeypatch.setattr(Snapshots, "show", lambda *_: row)
    assert results.item(ran("snapshot", "show", "ready", "--output", "json").stdout) == {
        "name": "lab@ready",
        "lab": "lab",
        "problem": "",
        "disk_bytes": 3 << 20,
        "memory_bytes": 1 << 20,
        "labs": ["try"],
        "hypervisors": [
            {"name": "hypervisor-1", "disk_bytes": 3 << 20, "memory_bytes": 1 << 20},
            {"name": "hypervisor-2", "disk_bytes": None, "memory_bytes": None},
        ],
        "made": "2026-11-27T12:00:00+00:00",
        "made_by": "0.1",
        "needs": {"accelerator": "tcg", "version": "7.2.22", "cpu": ""},
        "memory": True,
        "paused": 4.2,
        "automatic": False,
        "nodes": ["controller-1", "node-1"],
    }


def test_what_a_silent_host_holds_is_shown_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    record = saved.snapshot(MemoryPool())
    row = Listed(record.id, record, "", disk=3 << 20, memory=1 << 20, copies=(), parts=PARTS)
    monkeypatch.setattr("winlab.all_snapshots", lambda _: [row])
    shown = ran("snapshot", "list").stdout
    assert "3 MiB or more" in shown
    assert "lab@ready: what it takes on hypervisor-2 is unknown." in shown
    monkeypatch.setattr(Snapshots, "show", lambda *_: row)
    shown = ran("snapshot", "show", "ready").stdout
    assert "hypervisor-1: 3 MiB of it" in shown
    assert "hypervisor-2: unknown: it does not answer" in shown


def test_a_copy_and_an_import_go_to_the_hypervisor_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    done = Copied("try", Id("lab", "ready"), 0.7, 2.5, shared=False)
    monkeypatch.setattr(Snapshots, "clone", lambda *_, on, **__: asked.append(on) or [done])
    record = saved.snapshot(MemoryPool())
    monkeypatch.setattr("winlab.import_snapshot", lambda *_, on, **__: asked.append(on) or record)
    for words in (("clone", "lab@ready", "try"), ("snapshot", "import", "file")):
        ran(*words)
        ran(*words, "--on", "big")
    assert asked == [None, "big", None, "big"]
