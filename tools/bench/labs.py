"""Whole labs: create, save, clone, reset, status, destroy; ten clones at once."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import processes
from bench.framework import Reading, Readings, measurement
from bench.record import Missing
from bench.stage import BASE, COPY, NAME, PREFIX, Stage
from winlab import Lab, Site, UsageError, all_snapshots

COLD = f"{PREFIX}cold"
TEN = f"{PREFIX}ten"


@measurement(1, cold=True)
def create_cold(stage: Stage, times: int) -> Readings:
    """``create`` with empty caches."""
    if os.geteuid() != 0 or Lab.all() or all_snapshots():
        raise UsageError(
            "A cold create needs root, and a host without labs and snapshots.",
            why="The storage pool's base volumes are moved aside, and their disks are based on them.",
            cure="Become root and remove them, or leave --cold out.",
        )
    for _ in range(times):
        with _no_base_volumes(), tempfile.TemporaryDirectory(dir=stage.folder) as cache, stage.temporary(COLD):
            ran = stage.winlab("create", "--lab", COLD, *stage.create, env={"WINLAB_CACHE": cache})
            yield Reading("create, cold", ran.seconds)


@contextmanager
def _no_base_volumes() -> Iterator[None]:
    """Move the pool's base volumes aside, also after a run that was killed here; only root can."""
    with Site().storage() as hosts:
        (pool,) = (host.pool for host in hosts)
        folder = pool.folder
        aside = folder.with_name(f"{folder.name}.{PREFIX}aside")

        def back() -> None:
            _move(aside, folder)
            aside.rmdir()
            pool.refresh()

        if aside.exists():
            back()
        aside.mkdir()
        try:
            _move(folder, aside)
            pool.refresh()
            yield
        finally:
            for path in folder.glob("base-*"):
                path.unlink()
            back()


def _move(source: Path, target: Path) -> None:
    for path in source.glob("base-*"):
        path.rename(target / path.name)


@measurement(3)
def create(stage: Stage, times: int) -> Readings:
    """``create`` with everything in the caches."""
    stage.lab()  # fills the caches
    for _ in range(times):
        Lab(BASE).destroy()
        stage.settle()
        yield Reading("create, from cache", stage.winlab("create", "--lab", BASE, *stage.create).seconds)


@measurement(5)
def status(stage: Stage, times: int) -> Readings:
    """``status`` of the Ready lab."""
    stage.lab()
    for _ in range(times):
        yield Reading("status", stage.winlab("status", "--lab", BASE).seconds)


@measurement(5)
def save(stage: Stage, times: int) -> Readings:
    """``snapshot save``: the pause of the machines, and the whole command."""
    lab = stage.lab()
    for _ in range(times):
        stage.settle()
        ran = stage.winlab("snapshot", "save", "measured", "--lab", BASE)
        record = lab.snapshots.show("measured").record
        assert record is not None
        yield Reading("save: machines paused", record.paused)
        yield Reading("save: command ends", ran.seconds)
        lab.snapshots.delete("measured")


@measurement(5)
def clone(stage: Stage, times: int) -> Readings:
    """``clone`` of the snapshot, beside the suspended lab."""
    origin = stage.snapshot()
    for _ in range(times):
        with stage.temporary(COPY):
            yield from _copied(stage, "clone", COPY, "clone", origin, COPY)
        stage.settle()


@measurement(1)
def ten_clones(stage: Stage, times: int) -> Readings:
    """Ten clones at once, compared with the lab itself."""
    origin = stage.snapshot()
    for _ in range(times):
        with stage.temporary(*(f"{TEN}-{number}" for number in range(1, 11))):
            before = _own_cpu()
            ran = stage.winlab("clone", origin, TEN, "--count", "10")
            yield Reading("ten clones: machines run", ran.last("restored"))
            yield Reading("ten clones: command ends", ran.seconds)
            copies = processes.emulators(f"{TEN}-")
            yield Reading("ten clones: processor time of QEMU", processes.seconds(copies))
            yield Reading("ten clones: processor time of winlab", _own_cpu() - before)
            try:
                yield Reading("ten clones: memory", processes.memory(copies), "MB")
                yield Reading("one lab: memory", processes.memory(processes.emulators(f"{BASE}.")), "MB")
            except PermissionError:
                yield Missing("ten clones: memory", "only root sees the memory of QEMU's processes")


def _own_cpu() -> float:
    """The processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@measurement(3)
def destroy(stage: Stage, times: int) -> Readings:
    """``destroy`` of a Ready lab: a clone, which has the same parts as one that ``create`` made."""
    origin = stage.snapshot()
    for _ in range(times):
        with stage.temporary(COPY):
            stage.winlab("clone", origin, COPY)
            yield Reading("destroy", stage.winlab("destroy", "--lab", COPY).seconds)


@measurement(5)
def reset(stage: Stage, times: int) -> Readings:
    """``reset`` of the running lab."""
    stage.snapshot()
    for _ in range(times):
        stage.lab()
        yield from _copied(stage, "reset", BASE, "reset", NAME, "--lab", BASE)


def _copied(stage: Stage, verb: str, lab: str, *words: str) -> Readings:
    """When a copy's machines run, its API server answers with all nodes Ready, and the command ends."""
    ran = stage.winlab(*words, follow=lab)
    yield Reading(f"{verb}: machines run", ran.last("restored"))
    if ran.answered is not None:
        yield Reading(f"{verb}: API answers", ran.answered)
    yield Reading(f"{verb}: command ends", ran.seconds)
