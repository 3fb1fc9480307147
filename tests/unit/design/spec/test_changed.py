"""A spec of a lab with changes: other given values stay, and omitted ones stay open."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design.spec.model import Spec
from winlab.errors import UsageError


def test_only_changed_fields_differ() -> None:
    held = Spec.load("1-2-1", ["workers.cpus=4", "linux_workers.count=1", "addons.metrics-server={}"])
    made = held.changed(["workers.count=3", "workers.linux.count=2"])
    assert (made.workers[0].count, made.workers[0].cpus, made.linux_workers.count) == (3, 4, 2)
    assert made.addons == held.addons
    assert "version" not in made.kubernetes.model_fields_set, "winlab still decides it"


def test_pools_of_several_systems() -> None:
    held = Spec.load("mixed", rehearse=True)
    made = held.changed(["workers.linux.count=2", "workers.win25.cpus=4"])
    assert [(pool.name, pool.os, pool.count, pool.cpus) for pool in made.workers] == [
        (pool.name, pool.os, 2 if pool.name == "linux" else pool.count, 4 if pool.name == "win25" else pool.cpus)
        for pool in held.workers
    ]


def test_variables_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Spec.load("1-1-1")
    monkeypatch.setenv("WINLAB_WORKERS_CPUS", "8")
    assert held.changed(["workers.count=2"]).workers[0].cpus == 2


def test_files_that_were_allowed_stay_allowed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.yaml").write_text(f"workers: {{files: {outside}}}\n")
    held = Spec.load(str(tmp_path / "own" / "own.yaml"), allow=[outside])
    made = held.changed(["workers.count=2"], allow=["/srv"])
    assert made.workers[0].files == outside
    assert made.roots == (*held.roots, Path("/srv"))


@pytest.mark.parametrize("change", ["workers.count=-1", "workers.other.count=2", "controllers.count=2", "nonsense"])
def test_an_invalid_change_is_refused(change: str) -> None:
    with pytest.raises(UsageError):
        Spec.load("1-1-1").changed([change])
