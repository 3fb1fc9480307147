"""Golden images that are there already: what is done with them before, and instead of, making new ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import plans
import pytest
from clones import REHEARSAL, clone, keep, make

from winlab import golden, goldens, images, settings
from winlab.errors import ConflictError
from winlab.events import Quiet
from winlab.media import stock
from winlab.vm import volumes
from winlab.vm.connection import connected


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    plans.fixed_keys(monkeypatch)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[volumes.Pool]:
    """winlab's pool, empty, in libvirt's own mock of a hypervisor, which lives in this process."""
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "test:///default")
    xml = f"<pool type='dir'><name>{settings.POOL}</name><target><path>/pool</path></target></pool>"
    with connected() as conn:
        conn.storagePoolCreateXML(xml, 0)
        yield volumes.Pool(conn)
        conn.storagePoolLookupByName(settings.POOL).destroy()


def test_a_golden_image_is_removed_from_the_pool_too(pool: volumes.Pool) -> None:
    plan = make(REHEARSAL)
    keep(plan)
    base = golden.volume(clone(plan))
    for name in (base, base + volumes.MARKER, "base-other.qcow2", "base-other.qcow2" + volumes.MARKER):
        pool.create_disk(name, 1)
    pool.create_disk("two.node-1.disk.qcow2", 1, base)
    pool.create_disk("one.node-1.disk.qcow2", 1, base)
    pool.create_disk("three.node-1.disk.qcow2", 1, "base-other.qcow2")
    with pytest.raises(ConflictError, match="one, two") as caught:
        images.remove(stock.find("windows-rehearsal"))
    assert "winlab destroy --lab one" in caught.value.cure
    assert pool.is_complete(base)
    assert stock.items()
    pool.delete("one.node-1.disk.qcow2")
    pool.delete("two.node-1.disk.qcow2")
    images.remove(stock.find("windows-rehearsal"))
    assert pool.names("base-") == ["base-other.qcow2", "base-other.qcow2" + volumes.MARKER]
    assert stock.items() == []
    with connected() as conn, ExitStack() as held:
        assert goldens.lacking(plan, lambda: goldens.is_there(plan, pool, conn), held, Quiet()) == plan.builder


def test_an_image_that_is_being_uploaded_is_not_removed(pool: volumes.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(REHEARSAL)
    keep(plan)
    pool.create_disk(golden.volume(clone(plan)), 1)
    monkeypatch.setattr(volumes.Pool, "is_abandoned", lambda *_: False)
    with pytest.raises(ConflictError, match="uploading"):
        images.remove(stock.find("windows-rehearsal"))
    assert stock.items()
    monkeypatch.setattr(volumes.Pool, "is_abandoned", lambda *_: True)
    images.remove(stock.find("windows-rehearsal"))
    assert pool.names() == []


def test_without_libvirt_the_cache_s_copy_is_removed() -> None:
    keep(make(REHEARSAL))
    assert images.remove(stock.find("windows-rehearsal")) > 0
    assert stock.items() == []
