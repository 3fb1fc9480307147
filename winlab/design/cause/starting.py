"""Why a machine does not start, crashes, or is not heard of any more.

If there is only silence, the last line shows the place; it counts only if nothing else explains the failure.
"""

from __future__ import annotations

from winlab.design.cause.model import LATER, LOGGED_ON, Cause, Clue, Effect

ANY_PHASE = Clue("winlab: phase=")


def _bugcheck(codes: str) -> tuple[Clue, ...]:
    """The clues of a bugcheck, by its code: libvirt's log of the machine, winlab's failure, Windows' own event.

    Windows may add 0x10000000 to a code.
    """
    number = rf"0x(0{{0,16}}|10{{4,5}})({codes})"
    return (
        Clue("panic hyper-v:", rf"arg1='{number}'"),
        Clue("stopped with bugcheck", rf"stopped with bugcheck {number}\b"),
        Clue("bugcheck was:", rf"bugcheck was: {number}\b"),
    )


CAUSES = (
    Cause(
        "no-key-pressed",
        Effect.ENDS,
        (Clue("bdsdxe: failed to start", r"(DVD|CD)-ROM.{0,300}Time ?out"),),
        "The medium asked for a key, and none was pressed.",
        "Microsoft's boot image waits five seconds for one; winlab uses the one that does not ask, if it exists.",
        "Run the same command again: winlab presses keys while the medium starts. 'winlab iso inspect FILE' says "
        "whether it asks.",
        "tianocore/edk2; Microsoft: efisys_noprompt.bin",
    ),
    Cause(
        "processor",
        Effect.ENDS,
        (
            *_bugcheck("5C|5D"),
            Clue("bdsdxe: starting boot", r"(DVD|CD)-ROM", times=3, until=ANY_PHASE),
        ),
        "Windows does not run on this processor: it restarts repeatedly before Setup begins.",
        "Windows Server 2025 needs SSE4.2 and POPCNT, which old processors and some of QEMU's models lack.",
        "Use a host whose processor has them ('winlab doctor'), or --os windows-2022.",
        "Microsoft: requirements of Windows Server 2025; hashicorp/packer#13342, #13514",
    ),
    Cause(
        "bugcheck-no-boot-disk",
        Effect.ENDS,
        _bugcheck("7B"),
        "Windows crashed: it can't read its boot disk (bugcheck 0x7B).",
        "The driver for the disk's bus is not installed, or the bus of an existing disk was changed.",
        "Use --set workers.bus=sata, or a virtio-win ISO that knows this release: workers.drivers.",
        "Microsoft: bug check 0x7B; cschneegans/unattend-generator#180",
    ),
    Cause(
        "bugcheck-disk",
        Effect.ENDS,
        _bugcheck("24|77|7A|ED"),
        "Windows crashed: its disk, or the file system on it, could not be read or written.",
        "The storage pool is full, or the disk under it fails.",
        "Look at the pool's free space and the host's log, then destroy the lab and create it again.",
        "Microsoft: bug checks 0x24, 0x77, 0x7A, 0xED",
    ),
    Cause(
        "bugcheck-too-slow",
        Effect.ENDS,
        _bugcheck("101|133"),
        "Windows crashed: one of its processors did not respond in time (bugcheck 0x101 or 0x133).",
        "The host is overloaded, or emulates the machine.",
        "Run fewer things at once on the host, or give the node fewer processors: workers.cpus.",
        "Microsoft: bug checks 0x101 and 0x133",
    ),
    Cause(
        "bugcheck",
        Effect.ENDS,
        _bugcheck("[0-9A-F]{1,8}"),
        "Windows crashed (a bugcheck).",
        "Its code says where: most come from a driver.",
        "Look the code up in Microsoft's bug check code reference; try another virtio-win ISO (workers.drivers), or "
        "--set workers.bus=sata.",
        "Microsoft: bug check code reference; libvirt's log of a machine",
    ),
    Cause(
        "nothing-starts",
        Effect.SILENT,
        (Clue("bdsdxe: no bootable option", until=ANY_PHASE), Clue("uefi interactive shell", until=ANY_PHASE)),
        "The firmware found nothing to boot.",
        "The medium does not boot with UEFI, or the disk has no system on it.",
        "'winlab iso inspect FILE' shows which firmware the medium boots with; or try workers.firmware=bios.",
        "tianocore/edk2",
    ),
    Cause(
        "silent-after-the-medium",
        Effect.SILENT,
        (Clue("bdsdxe: starting boot", r"(DVD|CD)-ROM", until=ANY_PHASE),),
        "The firmware started the medium, but Setup was silent.",
        "Setup asks something on the screen (a language that the medium lacks, a key), did not accept the answer file, "
        "or Windows PE can't write to the serial port.",
        "Look at the screen: 'winlab vnc NODE', or screen.png of the evidence.",
        "winlab's phases on the serial port; Windows PE gives the port no name",
    ),
    Cause(
        "silent-in-windows-pe",
        Effect.SILENT,
        (Clue("winlab: phase=windowspe", until=LATER),),
        "Setup began, but Windows was not started from the disk.",
        "It is still copying files, or shows a question or an error on the screen.",
        "Look at the screen: 'winlab vnc NODE', or screen.png of the evidence.",
        "winlab's phases on the serial port",
    ),
    Cause(
        "no-first-logon",
        Effect.SILENT,
        (Clue("winlab: phase=specialize", until=LOGGED_ON),),
        "Windows was started from the disk, but no one was logged on.",
        "It waits at a page of its first start, or the automatic logon fails. The account has another name in the "
        "medium's language, or the clone did not find its answer file.",
        "Look at the screen: 'winlab vnc NODE'. If the medium is not English, use an English one.",
        "cloudbase/windows-imaging-tools#175; KubeVirt: sysprep and answer files",
    ),
)
