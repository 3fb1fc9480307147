"""A machine whose kernel crashed: reported with the bugcheck's code, and not restarted, which would only repeat it.

Names and meanings: Microsoft, "Bug check code reference".
"""

from __future__ import annotations

from winlab.adapters.vm import crash
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.crash import Crash
from winlab.design.cause.reading import recognise
from winlab.errors import GuestError
from winlab.events import NodeCrashed, Progress, report
from winlab.steps.paused import Machine

DUMPED = 0x10000000  # added to some codes where memory is dumped
BUGCHECKS = {
    0x0A: "IRQL_NOT_LESS_OR_EQUAL",
    0x1A: "MEMORY_MANAGEMENT",
    0x1E: "KMODE_EXCEPTION_NOT_HANDLED",
    0x24: "NTFS_FILE_SYSTEM",
    0x3B: "SYSTEM_SERVICE_EXCEPTION",
    0x50: "PAGE_FAULT_IN_NONPAGED_AREA",
    0x51: "REGISTRY_ERROR",
    0x5C: "HAL_INITIALIZATION_FAILED",
    0x5D: "UNSUPPORTED_PROCESSOR",
    0x6B: "PROCESS1_INITIALIZATION_FAILED",
    0x74: "BAD_SYSTEM_CONFIG_INFO",
    0x77: "KERNEL_STACK_INPAGE_ERROR",
    0x7A: "KERNEL_DATA_INPAGE_ERROR",
    0x7B: "INACCESSIBLE_BOOT_DEVICE",
    0x7E: "SYSTEM_THREAD_EXCEPTION_NOT_HANDLED",
    0x7F: "UNEXPECTED_KERNEL_MODE_TRAP",
    0x8E: "KERNEL_MODE_EXCEPTION_NOT_HANDLED",
    0x9F: "DRIVER_POWER_STATE_FAILURE",
    0xA5: "ACPI_BIOS_ERROR",
    0xC2: "BAD_POOL_CALLER",
    0xC4: "DRIVER_VERIFIER_DETECTED_VIOLATION",
    0xC5: "DRIVER_CORRUPTED_EXPOOL",
    0xCA: "PNP_DETECTED_FATAL_ERROR",
    0xD1: "DRIVER_IRQL_NOT_LESS_OR_EQUAL",
    0xE2: "MANUALLY_INITIATED_CRASH",
    0xED: "UNMOUNTABLE_BOOT_VOLUME",
    0xEF: "CRITICAL_PROCESS_DIED",
    0xF4: "CRITICAL_OBJECT_TERMINATION",
    0xFC: "ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY",
    0x101: "CLOCK_WATCHDOG_TIMEOUT",
    0x109: "CRITICAL_STRUCTURE_CORRUPTION",
    0x124: "WHEA_UNCORRECTABLE_ERROR",
    0x133: "DPC_WATCHDOG_VIOLATION",
    0x139: "KERNEL_SECURITY_CHECK_FAILURE",
    0x154: "UNEXPECTED_STORE_EXCEPTION",
    0xC000021A: "STATUS_SYSTEM_PROCESS_TERMINATED",
}
ELSE = "A driver or the hardware is the usual cause: try other virtio drivers (workers.drivers)."


def require_no_crash(conn: Connection, lab: str, node: Machine, progress: Progress) -> None:
    """Check that a machine's kernel did not crash.

    :raises GuestError: it did; the event says so, too.
    """
    crash_told = crash.read(conn, node)
    if crash_told is None:
        return
    event = told(node.name, crash_told)
    report(progress, event)
    cause = recognise(event.text)
    raise GuestError(
        event.text,
        why=f"Its arguments: {', '.join(event.arguments)}." if event.arguments else "It could not report the code.",
        cure=f"{ELSE if cause is None else cause.cure} "
        "The same command starts it again; until then its screen is as it was.",
        evidence=f"winlab screenshot {node.name} --lab {lab}; winlab serial {node.name} --log --lab {lab}",
    )


def tell_crash(conn: Connection, node: Machine, progress: Progress) -> None:
    """Report that a machine's kernel had crashed, before it is started again; nothing if it had not."""
    if (crash_told := crash.read(conn, node)) is not None:
        report(progress, told(node.name, crash_told))


def told(node: str, crash_told: Crash) -> NodeCrashed:
    """The event that says so."""
    if crash_told.code is None:
        return NodeCrashed(node=node, text=f"The kernel of '{node}' gave up (a bugcheck, on Windows a blue screen).")
    code = f"0x{crash_told.code:08X}"
    name = BUGCHECKS.get(crash_told.code & ~DUMPED, "")
    arguments = tuple(f"0x{number:X}" for number in crash_told.arguments)
    text = f"Windows in '{node}' stopped with bugcheck {f'{code} {name}'.rstrip()} (a blue screen)."
    return NodeCrashed(node=node, text=text, code=code, name=name, arguments=arguments)
