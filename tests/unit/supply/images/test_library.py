"""Existing golden images: how they are used before, and instead of, making new ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from clones import REHEARSAL, Network, clone, keep, make

from winlab import settings
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import volumes
from winlab.adapters.vm.connection import connected
from winlab.design.catalog import recipes
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError, UsageError
from winlab.events import Event, Note, Quiet
from winlab.operations import create as creating
from winlab.operations import golden as goldens
from winlab.operations import making, prune
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps.sources import Origin
from winlab.supply.images import cache, library, windows_media
from winlab.supply.images import golden as golden_cache


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[volumes.StoragePool]:
    """winlab's pool, empty, in libvirt's own mock of a hypervisor, which lives in this process."""
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "test:///default")
    xml = f"<pool type='dir'><name>{settings.POOL}</name><target><path>/pool</path></target></pool>"
    with connected() as conn:
        conn.storagePoolCreateXML(xml, 0)
        yield volumes.StoragePool(conn)
        conn.storagePoolLookupByName(settings.POOL).destroy()


def test_a_golden_image_is_removed_from_the_pool_too(
    pool: volumes.StoragePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(REHEARSAL)
    keep(plan)
    base = clone(plan).volume("base").name
    for name in (base, base + volumes.MARKER, "base-other.qcow2", "base-other.qcow2" + volumes.MARKER):
        pool.create_disk(name, 1)
    pool.create_disk("two.node-1.disk.qcow2", 1, base)
    pool.create_disk("one.node-1.disk.qcow2", 1, base)
    pool.create_disk("three.node-1.disk.qcow2", 1, "base-other.qcow2")
    with pytest.raises(ConflictError, match="one, two") as caught:
        prune.remove(library.find("windows-rehearsal"), Site())
    assert "winlab destroy --lab one" in caught.value.cure
    assert pool.is_complete(base)
    assert library.items()
    pool.delete("one.node-1.disk.qcow2")
    pool.delete("two.node-1.disk.qcow2")
    prune.remove(library.find("windows-rehearsal"), Site())
    assert pool.names("base-") == ["base-other.qcow2", "base-other.qcow2" + volumes.MARKER]
    assert library.items() == []
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(Network(set())))
    with Site().hypervisors() as hosts, ExitStack() as held:
        found = goldens.lacking(plan, Site(), lambda one: goldens.is_there(plan, one, hosts), held, lambda _: None)
        assert found == plan.builders


def test_an_image_that_is_being_uploaded_is_not_removed(
    pool: volumes.StoragePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(REHEARSAL)
    keep(plan)
    pool.create_disk(clone(plan).volume("base").name, 1)
    monkeypatch.setattr(volumes.StoragePool, "is_abandoned", lambda *_: False)
    with pytest.raises(ConflictError, match="uploading"):
        prune.remove(library.find("windows-rehearsal"), Site())
    assert library.items()
    monkeypatch.setattr(volumes.StoragePool, "is_abandoned", lambda *_: True)
    prune.remove(library.find("windows-rehearsal"), Site())
    assert pool.names() == []


def test_images_that_are_pruned_in_the_pool(pool: volumes.StoragePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes.StoragePool, "is_abandoned", lambda *_: True)
    for name in ("base-used", "base-free", "base-inserted"):
        pool.create_disk(name, 1)
        pool.create_disk(name + volumes.MARKER, 1)
    for name in ("base-half", "base-gone.claim", "base-gone.complete"):
        pool.create_disk(name, 1)
    pool.create_disk("one.node-1.disk.qcow2", 1, "base-used")
    inserted = str(pool.path("base-inserted"))
    prune._prune_pool(pool, lambda: {inserted}, waiting=False, dry_run=False)
    kept = ("base-inserted", "base-used")
    assert pool.names("base-") == sorted(one for name in kept for one in (name, name + volumes.MARKER))


def test_without_libvirt_the_cache_s_copy_is_removed() -> None:
    keep(make(REHEARSAL))
    freed, left = prune.remove(library.find("windows-rehearsal"), Site())
    assert freed > 0
    assert left  # is reported
    assert library.items() == []


class Passed(Exception):
    """It was checked, and the work would begin."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, pool: volumes.StoragePool) -> None:
    def begun(*_: object) -> None:
        raise Passed

    monkeypatch.setattr(goldens, "lacking", begun)
    monkeypatch.setattr(ovn, "connect", lambda *_: nullcontext(SimpleNamespace(lab_owner=lambda _: None)))


@pytest.mark.usefixtures("stopped")
def test_an_image_whose_evaluation_is_over_is_not_cloned(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(REHEARSAL)
    key = keep(plan, days=-1).image.key[: library.SHORT]
    for command in (
        lambda: creating.create(Proposal(Spec(), plan, Stock()), Site(), lambda _: None),
        lambda: goldens.build(plan, Stock(), Site(), lambda _: None, Origin()),
    ):
        with pytest.raises(UsageError, match="has expired") as caught:
            command()
        assert f"winlab image rm {key}" in caught.value.cure
    monkeypatch.setattr(making, "all_made", lambda *_, **__: True)  # an existing lab clones nothing
    with pytest.raises(Passed):
        creating.create(Proposal(Spec(), plan, Stock()), Site(), lambda _: None)


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(("days", "told"), [(0, 1), (13, 1), (14, 0), (None, 0)])
def test_an_evaluation_that_ends_soon_is_reported(days: int | None, told: int) -> None:
    plan = make(REHEARSAL)
    keep(plan, days=days)
    events: list[Event] = []
    with pytest.raises(Passed):
        creating.create(Proposal(Spec(), plan, Stock()), Site(), events.append)
    first = ("KVM", "In the rehearsal")  # which create reports first
    events = [one for one in events if not any(words in str(one) for words in first)]
    assert [f"expires in {days} days" in one.text for one in events if isinstance(one, Note)] == [True] * told
    assert len(events) == told


@pytest.mark.usefixtures("stopped")
def test_an_image_that_is_only_in_the_pool_is_used_as_it_is(pool: volumes.StoragePool) -> None:
    plan = make(REHEARSAL)
    base = clone(plan).volume("base").name
    for name in (base, base + volumes.MARKER):
        pool.create_disk(name, 1)
    with pytest.raises(Passed):
        creating.create(Proposal(Spec(), plan, Stock()), Site(), lambda _: None)


WINDOWS = "workers.os=windows-2022"


def golden_key(plan: Plan) -> str | None:
    windows = clone(plan).windows
    assert windows is not None
    return windows.golden


SATA = "workers.bus=sata"  # otherwise media of the user differ by their drivers, too


def iso(folder: Path, text: str) -> Path:
    path = folder / f"{text}.iso"
    path.write_text(text)
    return path


def test_without_a_medium_an_image_from_any_medium_will_do(tmp_path: Path) -> None:
    """The newest, if only the medium distinguishes it from what the plan asks for."""
    default = golden_key(make(WINDOWS, SATA))
    wanted = (WINDOWS, SATA, "workers.product_key=AAAAA-BBBBB-CCCCC-DDDDD-EEEEE")
    for age, name, others in ((3, "old", ()), (2, "new", ()), (1, "bios", ("workers.firmware=bios",))):
        made = keep(make(*wanted, f"workers.media={iso(tmp_path, name)}", *others))
        os.utime(made.path.parent, (time.time() - age, time.time() - age))
    found = make(*wanted)
    assert golden_key(found) == golden_key(make(*wanted, f"workers.media={tmp_path / 'new.iso'}"))
    assert clone(found).volume("disk").backing == clone(found).volume("base").name
    goldens.check_media(found, Stock(), Site())
    assert golden_key(make(WINDOWS, SATA)) == default
    assert golden_key(make(WINDOWS, SATA, "workers.product_key=BBBBB-BBBBB-CCCCC-DDDDD-EEEEE")) not in _keys_there()
    assert golden_key(make(*wanted, "workers.firmware=bios")) in _keys_there()


def _keys_there() -> set[str]:
    return {one.key for one in golden_cache.entries()}


@pytest.mark.parametrize("cached", [True, False])
def test_an_available_medium_decides(tmp_path: Path, cached: bool) -> None:
    keep(make(WINDOWS, SATA, f"workers.media={iso(tmp_path, 'old')}"))
    assert golden_key(make(WINDOWS, SATA)) in _keys_there()
    other = iso(tmp_path, "other")
    if cached:
        sha256 = hashlib.sha256(other.read_bytes()).hexdigest()
        recipe = recipes.get("windows-2022")
        cache.keep(recipe, windows_media.key(sha256), lambda to: (sha256, shutil.copy(other, to).name), Quiet())
        assert golden_key(make(WINDOWS, SATA)) not in _keys_there()
    else:
        assert golden_key(make(WINDOWS, SATA, f"workers.media={other}")) not in _keys_there()
