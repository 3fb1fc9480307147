"""`winlab image prune`: what it leaves alone, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import results
from commands import ran
from sites import FakeSite, hypervisor

from winlab import Supplies
from winlab.adapters.vm import domains
from winlab.design.catalog.recipes import Build, Recipe
from winlab.errors import ConflictError
from winlab.events import Quiet
from winlab.operations import prune
from winlab.site import Site
from winlab.supply.images import cache, library


def test_an_image_without_an_installed_builder_stays() -> None:
    """Its recipe's key is not known, so no one can say whether it is still needed."""

    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(b"media")
        return "0" * 64, "built"

    build = Build(builder="of-another-package", package="another-package")
    recipe = Recipe(name="a", summary="s", os="windows", format="iso", build=build)
    cache.keep(recipe, "f" * 64, fill, Quiet())
    (item,) = library.items()
    assert item.state == "its builder is not installed"
    prune.prune_all([recipe], Site())
    assert [image.key for image in cache.entries()] == ["f" * 64]
    prune.prune_all([], Site())
    assert cache.entries() == []


class Pool:
    """Base volumes, all complete; one is under a lab's disk."""

    def __init__(self) -> None:
        self.volumes = {
            "base-debian-13-aa.qcow2": 300 << 20,
            "base-windows-2022-bb.qcow2": 101 << 20,
            "base-windows-2022-bb.qcow2.complete": 1,
            "lab.controller-1.disk.qcow2": 1 << 20,
        }
        self.more: dict[str, Path] = {}

    def save(self, base: str) -> None:
        """Save the lab 'gone', whose machine is based on a volume, and destroy it."""
        frozen = "gone.node-1.disk.qcow2"
        self.volumes |= {frozen: 1 << 20, "gone@ready.node-1.disk.qcow2": 1}
        self.more = {frozen: self.path(base), "gone@ready.node-1.disk.qcow2": self.path(frozen)}

    def refresh(self) -> None: ...

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.volumes if name.startswith(prefix))

    def exists(self, name: str) -> bool:
        return name in self.volumes

    def path(self, name: str) -> Path:
        return Path("/pool") / name

    def backings(self) -> dict[str, Path]:
        return {"lab.controller-1.disk.qcow2": self.path("base-debian-13-aa.qcow2"), **self.more}

    def is_complete(self, name: str) -> bool:
        return True

    def allocation(self, name: str) -> int:
        return self.volumes[name]

    def delete(self, name: str) -> None:
        assert name == "base-windows-2022-bb.qcow2.complete", "only a marker without its volume is deleted here"
        del self.volumes[name]

    def retire(self, name: str, is_used: Callable[[], bool]) -> bool:
        assert not is_used()
        del self.volumes[name]
        return True


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool()
    monkeypatch.setattr(domains, "machines", lambda *_: [])
    monkeypatch.setattr(domains, "files", lambda _conn: set())
    return made


def old_image() -> None:
    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(b"x" * (2 << 20))
        return "0" * 64, "built"

    build = Build(builder="debian")
    cache.keep(Recipe(name="old", summary="s", os="linux", format="raw", build=build), "e" * 64, fill, Quiet())


def test_everything_is_named_with_its_size_and_a_dry_run_removes_nothing(pool: Pool) -> None:
    """ux N12: '0 MiB are free again', though a volume of 101 MiB was removed."""
    old_image()
    site, before = FakeSite(hypervisor(pool=pool)), dict(pool.volumes)
    would = prune.prune_all([], site, dry_run=True)
    assert [(one.place, one.name, one.size >> 20) for one in would] == [
        ("cache", f"old {'e' * 12}", 2),
        ("pool", "base-windows-2022-bb.qcow2", 101),
    ]
    assert (pool.volumes, len(cache.entries())) == (before, 1)
    assert prune.prune_all([], site) == would
    assert (len(pool.volumes), cache.entries()) == (2, [])
    assert prune.prune_all([], site) == []


def test_what_a_snapshot_needs_stays_and_is_listed_with_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    site, base = FakeSite(hypervisor(pool=pool)), "base-windows-2022-bb.qcow2"
    assert prune.kept_for_snapshots(site) == []
    pool.save(base)
    before = dict(pool.volumes)
    assert prune.prune_all([], site) == []
    assert pool.volumes == before
    kept = prune.kept_for_snapshots(site)
    assert kept == [prune.Kept(base, 101 << 20, ("gone@ready",))]
    monkeypatch.setattr(Supplies, "prune", lambda *_, **__: [])
    monkeypatch.setattr(Supplies, "kept_for_snapshots", lambda _: kept)
    text = "There is nothing to remove.\nKept for snapshots: base-windows-2022-bb.qcow2, 101 MiB, for gone@ready.\n"
    assert ran("image", "prune").stdout == text
    row = results.item(ran("image", "prune", "--output", "json").stdout)
    assert (row["name"], row["bytes"], row["removed"], row["kept_for"]) == (base, 101 << 20, False, ["gone@ready"])
    pool.more["try.node-1.disk.qcow2"] = pool.path("gone.node-1.disk.qcow2")  # a copy, which 'winlab list' shows
    assert prune.kept_for_snapshots(site) == []


def test_a_golden_image_that_a_snapshot_needs_is_refused_with_its_name(pool: Pool) -> None:
    pool.save("base-windows-2022-bb.qcow2")
    pool.more["try.node-1.disk.qcow2"] = pool.path("gone.node-1.disk.qcow2")
    with pytest.raises(ConflictError) as caught:
        prune._remove_base(pool, "base-windows-2022-bb.qcow2")  # type: ignore[arg-type]
    assert caught.value.why == "They are: try, gone@ready."
    assert "'winlab destroy --lab try', 'winlab snapshot delete gone@ready'" in caught.value.cure


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_the_command_lists_what_it_removes(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    removed = [prune.Pruned("pool", "base-windows-2022-bb.qcow2", 101 << 20)]
    asked: list[Any] = []
    monkeypatch.setattr(Supplies, "kept_for_snapshots", lambda _: [])
    monkeypatch.setattr(Supplies, "prune", lambda _, dry_run: asked.append(dry_run) or removed)
    done = ran("image", "prune", *words)
    assert asked == [bool(words)]
    assert done.stdout.split()[:3] == ["WHERE", "NAME", "SIZE"]
    assert "base-windows-2022-bb.qcow2" in done.stdout
    assert done.stdout.endswith(f"101 MiB {'would be' if words else 'are'} free again.\n")
    row = results.item(ran("image", "prune", *words, "--output", "json").stdout)
    assert (row["name"], row["bytes"], row["place"]) == ("base-windows-2022-bb.qcow2", 101 << 20, "pool")
    assert (row["removed"], row["kept_for"]) == (not words, [])
    removed.clear()
    assert ran("image", "prune", *words).stdout == "There is nothing to remove.\n"
