"""One Linux machine: winlab, the same domain by raw libvirt, and other tools."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import libvirt

from bench.framework import Reading, Readings, measurement
from bench.record import Missing
from bench.stage import PREFIX, Stage
from winlab import Lab, Site, WinlabError, run
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import StoragePool

VM = f"{PREFIX}vm"
MEMORY, CPUS, DISK = 1024, 2, 20  # MiB, processors, GiB
SIZES = ("--set", f"workers=[{{name: node, os: debian-13, memory: {MEMORY}MiB, cpus: {CPUS}, cluster: false}}]")
OTHERS = ("virt-install", "kcli")
LIMIT = 1800.0  # seconds: only a guest that hangs needs more


@measurement(3)
def one_vm(stage: Stage, times: int) -> Readings:
    """From nothing to a machine that runs, and to one that answers over ssh."""
    stage.idle()
    for _ in range(times):
        with stage.temporary(VM):
            ran = stage.winlab("create", "--spec", "0-1-1", *SIZES, "--lab", VM)
            yield Reading("VM runs: winlab", ran.last("started"))
            yield Reading("VM answers: winlab", ran.seconds)
            yield from _by_libvirt(stage)
    for tool in OTHERS:
        if run.find(tool) is None:
            yield Missing(f"VM runs: {tool}", "it is not installed")
            continue
        with _connected() as (conn, pool):
            for _ in range(times):
                yield _by_tool(tool, conn, pool)


@contextmanager
def _connected() -> Iterator[tuple[Connection, StoragePool]]:
    with Site().storage() as hosts:
        (host,) = hosts
        yield host.conn, host.pool


def _by_libvirt(stage: Stage) -> Readings:
    """Make the lab's machine again with calls of libvirt alone: a new disk, the same definition, the same network."""
    (machine,) = Lab(VM).machines()
    with _connected() as (conn, pool):
        domain = conn.lookupByUUIDString(machine.uuid)
        xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
        disk = f"{VM}.node-1.disk.qcow2"
        backing, size = pool.backing(disk), pool.capacity(disk) >> 20
        assert backing is not None
        _remove(domain)
        pool.delete(disk)
        stage.settle()
        begun = time.monotonic()
        pool.create_disk(disk, size, backing.name)
        conn.defineXML(xml).create()
        yield Reading("VM runs: libvirt", time.monotonic() - begun)
        _until_ssh(machine.tag.floating)
        yield Reading("VM answers: libvirt", time.monotonic() - begun)


def _until_ssh(address: str) -> None:
    """Wait until an ssh server greets."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection((address, 22), timeout=2) as peer:
            if peer.recv(4) == b"SSH-":
                return
        time.sleep(0.1)
    raise WinlabError(f"There is no ssh server at {address} after {LIMIT:.0f} s.")


def _by_tool(tool: str, conn: Connection, pool: StoragePool) -> Reading | Missing:
    """How long another tool takes until a machine over the same base volume runs."""
    what, name = f"VM runs: {tool}", f"{PREFIX}{tool}"
    base = next((one for one in pool.names("base-debian-13-") if one.endswith(".qcow2")), None)
    if base is None:
        return Missing(what, "the pool has no debian-13")
    try:
        return Reading(what, run.run(_words(tool, name, pool.path(base), pool.pool), timeout=LIMIT).seconds)
    except WinlabError as error:
        return Missing(what, f"it failed: {(error.why or error.what).splitlines()[-1]}")
    finally:
        with suppress(libvirt.libvirtError):
            _remove(conn.lookupByName(name))
        pool.refresh()
        for volume in pool.names(name):
            pool.delete(volume)


def _words(tool: str, name: str, base: Path, pool: str) -> list[str]:
    if tool == "virt-install":
        disk = f"pool={pool},size={DISK},format=qcow2,backing_store={base},backing_format=qcow2"
        sizes = ["--memory", str(MEMORY), "--vcpus", str(CPUS), "--disk", disk]
        rest = ["--network", "none", "--boot", "uefi", "--graphics", "none", "--noautoconsole"]
        return [tool, "--name", name, "--import", *sizes, *rest, "--osinfo", "detect=off,require=off"]
    values = (f"pool={pool}", f"memory={MEMORY}", f"numcpus={CPUS}", f"disks=[{DISK}]", "nets=[]", "cloudinit=False")
    return [tool, "create", "vm", "-i", base.name, *(word for value in values for word in ("-P", value)), name]


def _remove(domain: Any) -> None:
    with suppress(libvirt.libvirtError):  # it is off
        domain.destroy()
    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
