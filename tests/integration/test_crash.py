"""A kernel panic, on real libvirt and QEMU: the panic device that Windows nodes get, and how winlab reports it.

The machine has a boot sector for a disk, which writes to the device's port, as a driver in Windows would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import plans
import pytest
from lxml import etree

from winlab.adapters.vm import agent, crash, display, domains, power
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.crash import Crash
from winlab.design.render.domain import domain_xml
from winlab.site import Site

PLAN = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal", lab="it-crash")
NODE = PLAN.node("node-1")
# mov dx, 0x505; mov al, 1; out dx, al; hlt; jmp back
SECTOR = bytes.fromhex("ba0505b001eef4ebfd").ljust(510, b"\0") + b"\x55\xaa"
DISK = SECTOR.ljust(1 << 20, b"\0")  # SeaBIOS reads nothing from a disk of one sector
LIMIT = 120.0  # seconds; a bound, no expectation


@pytest.fixture
def conn(host: None, tmp_path: Path) -> Iterator[Connection]:
    """libvirt, and a machine as winlab renders it, but for what it would stand on; it crashes as soon as it runs."""
    with Site().storage() as hosts:
        connection, folder = hosts.on(NODE).conn, hosts.on(NODE).pool.folder
        sector = folder / "it-crash.img"
        domains.remove(connection, NODE)
        sector.write_bytes(DISK)
        root = etree.fromstring(domain_xml(PLAN, NODE, "secret", folder).encode())
        root.find("memory").text = "64"
        root.find("os").attrib.pop("firmware")
        root.find("os").remove(root.find("os/firmware"))
        devices = root.find("devices")
        for name in ("disk", "interface", "serial"):
            for device in devices.findall(name):
                devices.remove(device)
        devices.append(
            etree.fromstring(
                f"<disk type='file'><driver name='qemu' type='raw'/><source file='{sector}'/>"
                "<target dev='sda' bus='sata'/></disk>"
            )
        )
        try:
            domains.define(connection, NODE, etree.tostring(root, encoding="unicode"))
            power.start(connection, NODE)
            yield connection
        finally:
            domains.remove(connection, NODE)
            sector.unlink()


def wait_for_crash(conn: Connection) -> None:
    end = time.monotonic() + LIMIT
    while domains.state(conn, NODE) != domains.CRASHED:
        assert time.monotonic() < end, domains.state(conn, NODE)
        time.sleep(0.1)


def test_a_crashed_machine_stays_crashed_until_it_is_started(conn: Connection) -> None:
    wait_for_crash(conn)
    assert crash.read(conn, NODE) == Crash()  # this device has no code; QEMU was asked for one
    assert display.screenshot(conn, NODE).startswith(b"\x89PNG")
    assert display.look(conn, NODE).startswith(b"P6")
    assert not agent.answers(conn, NODE)
    first = domains.get(conn, NODE).ID()
    power.start(conn, NODE)
    assert domains.get(conn, NODE).ID() != first
    wait_for_crash(conn)  # again: it was started a second time
