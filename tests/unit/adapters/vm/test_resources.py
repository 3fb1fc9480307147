"""What a hypervisor has, by libvirt's own mock of one: only its memory's statistics are missing there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import libvirt
import plans
import pytest
import sites

from winlab import stopping
from winlab.adapters.vm import domains, resources
from winlab.adapters.vm.connection import connected
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Silent
from winlab.adapters.vm.volumes import MARKER, StoragePool
from winlab.design.plan import tags
from winlab.design.plan.facts import MachineFacts
from winlab.errors import HostError

STATS = {"total": 24 << 20, "free": 10 << 20, "buffers": 1 << 20, "cached": 4 << 20}  # KiB


class Conn:
    """The mock, with statistics."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def getMemoryStats(self, cells: int) -> dict[str, int]:
        assert cells == libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS
        return STATS


@pytest.fixture
def host() -> Iterator[Hypervisor]:
    with connected("test:///default") as real:
        conn = cast(Any, Conn(real))
        pool = StoragePool(conn, "default-pool")
        yield sites.hypervisor(conn, pool, name="big", facts=MachineFacts(chassis="its own"))
        for name in pool.names():
            real.storagePoolLookupByName("default-pool").storageVolLookupByName(name).delete()


def test_what_a_hypervisor_has(host: Hypervisor) -> None:
    for name in ("base-a.qcow2", f"base-a.qcow2{MARKER}", "base-half.qcow2", "lab.node-1.disk.qcow2"):
        xml = f"<volume><name>{name}</name><capacity>1024</capacity></volume>"
        host.conn.storagePoolLookupByName("default-pool").createXML(xml)
    found = resources.of(host, "lab")
    assert (found.name, found.facts.chassis, found.trouble) == ("big", "its own", "")
    assert (found.memory_mib, found.free_mib) == (24 << 10, 15 << 10)
    assert (found.promised_mib, found.promised_cpus, found.cores) == (8 << 10, 2, 16)
    assert found.pool_free in range((100 << 30) - 4096, (100 << 30) + 1)
    assert (found.bases, found.nodes) == ({"base-a.qcow2"}, {"node-1"})
    assert resources.of(host, "other").nodes == frozenset()


def test_which_machines_of_the_lab_it_has(host: Hypervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Machine("winlab-lab-node-2", "running", tags.of(plan := plans.make(plans.KVM, "1-2-1"), plan.node("node-2")))
    monkeypatch.setattr(domains, "machines", lambda _, lab: [own] if lab == "lab" else [])
    assert [resources.of(host, lab).nodes for lab in ("lab", "other")] == [{"node-2"}, frozenset()]


def test_one_that_does_not_answer_is_a_value(host: Hypervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def lost(_: int) -> None:
        raise libvirt.libvirtError("the line is cut")

    def stuck(_: int) -> None:
        over.wait()

    broken = [sites.hypervisor(SimpleNamespace(getMemoryStats=call), name=call.__name__) for call in (lost, stuck)]

    def patiently(call: Any, *, limit: float) -> Any:  # only the one that is stuck runs into the limit
        return stopping.patiently(call, limit=0.1 if call.args[0].name == "stuck" else limit)

    monkeypatch.setattr(resources, "stopping", SimpleNamespace(patiently=patiently))
    off = Silent("off", HostError("no route"))
    found = resources.of_all(Hypervisors((*broken, host), (off,)), "lab")
    assert [(one.name, one.trouble) for one in found] == [
        ("lost", "the line is cut"), ("stuck", "no answer within 0 s"), ("big", ""), ("off", "no route."),
    ]  # fmt: skip
    over.set()


def test_hypervisors_that_are_not_known_are_an_error(host: Hypervisor) -> None:
    with pytest.raises(HostError, match="not known which other hypervisors"):
        resources.of_all(Hypervisors((host,), (Silent("", HostError("OVN does not answer.")),)), "lab")


def test_one_without_a_pool_can_not_be_used() -> None:
    def no_pool() -> StoragePool:
        raise HostError("libvirt has no usable storage pool 'winlab'.")

    with connected("test:///default") as real:
        new = Hypervisor("new", cast(Any, Conn(real)), no_pool, MachineFacts)
        (found,) = resources.of_all(Hypervisors((new,)), "lab")
    assert (found.name, found.trouble) == ("new", "libvirt has no usable storage pool 'winlab'.")


def test_a_domain_that_is_removed_meanwhile() -> None:
    def gone(code: int) -> Any:
        error = libvirt.libvirtError("gone")
        error.err = (code, libvirt.VIR_FROM_QEMU, "gone", 2, "", "", "", 0, 0)

        def info() -> None:
            raise error

        return SimpleNamespace(info=info)

    assert resources._promised(gone(libvirt.VIR_ERR_NO_DOMAIN)) == (0, 0)
    with pytest.raises(libvirt.libvirtError):
        resources._promised(gone(libvirt.VIR_ERR_INTERNAL_ERROR))
