"""What the shell completes for snapshots and copies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import saved
from pools import MemoryPool

from winlab import Lab, snapshots
from winlab.cli import complete


@pytest.fixture(autouse=True)
def two_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    monkeypatch.setattr(Lab, "known_names", lambda: ["golden-2022-b1c3", "lab", "other"])
    record = saved.snapshot(MemoryPool())
    snapshots.write(record)
    snapshots.write(record.model_copy(update={"lab": "other", "name": "old"}))


@pytest.mark.parametrize(("lab", "own"), [(None, "ready"), ("other", "old")])
def test_snapshots_of_the_lab_are_named_alone_and_all_with_their_labs(lab: str | None, own: str) -> None:
    context: Any = SimpleNamespace(params={"lab": lab})
    assert complete.complete_snapshots(context) == [own, "lab@ready", "other@old"]


def test_labs_and_snapshots_can_be_copied() -> None:
    assert complete.complete_origins() == ["lab@ready", "other@old", "lab", "other"]
