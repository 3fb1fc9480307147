"""What a machine's kernel reported when it crashed: a bugcheck's code and arguments, which Windows passes to QEMU.

With the panic device ``hyperv`` Windows writes them into the registers HV_X64_MSR_CRASH_P0 to P4 (Microsoft,
"Hypervisor Top Level Functional Specification", partition crash enlightenment), and QEMU stops the machine. libvirt
reports the crash, but not its code; QEMU keeps the code in its processors' property ``crash-information``
(target/i386/cpu-sysemu.c). A device ``isa`` (pvpanic) reports no code.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

import libvirt
import libvirt_qemu

from winlab import documents
from winlab.adapters.vm.connection import Connection, answering
from winlab.adapters.vm.domains import Named, find

ARGUMENTS = 4  # of a bugcheck; the register before them has its code
MOST = 1 << 16  # bytes of an answer that are read


@dataclass(frozen=True)
class Crash:
    """A kernel that crashed. ``code`` is None if the machine could not report it."""

    code: int | None = None
    arguments: tuple[int, ...] = ()


@answering()
def read(conn: Connection, machine: Named) -> Crash | None:
    """What the kernel of a crashed machine reported; None if the machine is not in that state."""
    domain = find(conn, machine)
    if domain is None or domain.state()[0] != libvirt.VIR_DOMAIN_CRASHED:
        return None
    with suppress(libvirt.libvirtError, ValueError):  # then there is no code to report
        processors = _ask(domain, "query-cpus-fast")
        for processor in processors if isinstance(processors, list) else []:
            path = processor.get("qom-path") if isinstance(processor, dict) else None
            with suppress(libvirt.libvirtError):  # this processor did not report the crash
                told = _ask(domain, "qom-get", path=path, property="crash-information")
                if (crash := _crash(told)) is not None:
                    return crash
    return Crash()


def _ask(domain: libvirt.virDomain, what: str, **arguments: object) -> object:
    """What QEMU's monitor returns.

    :raises libvirtError: it refuses, or there is no QEMU.
    :raises ValueError: it returns something else.
    """
    question = {"execute": what, "arguments": arguments} if arguments else {"execute": what}
    answer = libvirt_qemu.qemuMonitorCommand(domain, json.dumps(question), 0)[:MOST]
    told = documents.from_json(answer)
    return told.get("return") if isinstance(told, dict) else None


def _crash(told: object) -> Crash | None:
    if not isinstance(told, dict) or told.get("type") != "hyper-v":
        return None
    numbers = [told.get(f"arg{number}") for number in range(1, ARGUMENTS + 2)]
    # QEMU's uint64 may come as a negative number
    values = [number & 0xFFFFFFFFFFFFFFFF for number in numbers if type(number) is int]
    return Crash(values[0], tuple(values[1:])) if len(values) == ARGUMENTS + 1 else None
