"""The power of domains: start, suspend, resume, reset, cut off; and whether they start with the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import libvirt

from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import explained
from winlab.adapters.vm.domains import Named


def start(conn: libvirt.virConnect, machine: Named) -> None:
    """Start the domain; one that is paused is resumed, one that crashed is started again. Safe to repeat."""
    domain = domains.get(conn, machine)
    with explained(
        f"The domain '{domain.name()}' can't be started.",
        cure="'winlab doctor' says whether the host is ready for labs.",
        evidence=f"/var/log/libvirt/qemu/{domain.name()}.log",
    ):
        if domain.isActive() and domain.state()[0] == libvirt.VIR_DOMAIN_CRASHED:
            domain.destroy()
        if not domain.isActive():
            domain.create()
    resume(conn, machine)


def suspend(conn: libvirt.virConnect, machine: Named) -> None:
    """Stop a running domain's processors; its memory stays as it is. Safe to repeat."""
    domain = domains.get(conn, machine)
    with explained(f"The domain '{machine.domain}' can't be suspended."):
        if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
            domain.suspend()


def resume(conn: libvirt.virConnect, machine: Named) -> None:
    """Resume the domain if it is paused."""
    domain = domains.get(conn, machine)
    with explained(
        f"The domain '{domain.name()}' can't be resumed.", evidence=f"/var/log/libvirt/qemu/{domain.name()}.log"
    ):
        if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            domain.resume()


@contextmanager
def paused(conn: libvirt.virConnect, machine: Named) -> Iterator[None]:
    """Pause a running domain for the length of a with-block: QEMU then writes all buffered data to its disks' files."""
    domain = domains.get(conn, machine)
    running = bool(domain.isActive()) and domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    with explained(f"The domain '{machine.domain}' can't be paused."):
        if running:
            domain.suspend()
        try:
            yield
        finally:
            if running:
                domain.resume()


def press_power(conn: libvirt.virConnect, machine: Named) -> None:
    """Press the power button (ACPI). The guest decides what to do; nothing happens if it is already off."""
    domain = domains.get(conn, machine)
    with explained(f"The power button of '{machine.domain}' can't be pressed."):
        if domain.isActive():
            domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)


def cut_power(conn: libvirt.virConnect, machine: Named) -> None:
    """Switch the domain off at once, as by its plug. Safe to repeat."""
    domain = domains.get(conn, machine)
    with explained(f"The power of '{machine.domain}' can't be cut."):
        if domain.isActive():
            domain.destroy()


def reset(conn: libvirt.virConnect, machine: Named) -> None:
    """Press the reset button."""
    with explained(f"'{machine.domain}' can't be reset."):
        domains.get(conn, machine).reset(0)


def set_autostart(conn: libvirt.virConnect, machine: Named, *, wanted: bool) -> bool:
    """Set whether libvirt starts the domain when it starts with the host; returns whether that changed."""
    domain = domains.get(conn, machine)
    with explained(f"Whether '{machine.domain}' starts with the host can't be changed."):
        if bool(domain.autostart()) == wanted:
            return False
        domain.setAutostart(int(wanted))
        return True
