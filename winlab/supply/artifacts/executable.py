"""Checks that a file is a program for a system on amd64. Reads the file's first bytes; starts nothing."""

from __future__ import annotations

import struct
from pathlib import Path

from winlab.design import system
from winlab.design.catalog.artifact import Program
from winlab.design.system import LINUX, SYSTEMS, WINDOWS, System, SystemName

# elf(5), e_machine: https://www.sco.com/developers/gabi/latest/ch4.eheader.html
_ELF_MACHINES = {3: "x86 (32 bit)", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 183: "arm64", 243: "riscv64"}
_ELF_AMD64 = 62
# https://learn.microsoft.com/windows/win32/debug/pe-format#machine-types
_PE_MACHINES = {0x14C: "x86 (32 bit)", 0x1C0: "arm", 0x1C4: "arm", 0xAA64: "arm64"}
_PE_AMD64 = 0x8664


def problem(path: Path, os: SystemName) -> str | None:
    """Why the file is not a program for *os* on amd64, as a sentence; None if it is one.

    :raises OSError: it can't be read.
    """
    description, wanted = describe(path), system.get(os).program_format
    return None if description == wanted else f"It is {description}, but should be {wanted}."


def system_of(path: Path) -> System | None:
    """The system for which the file is a program on amd64; None if it is not one.

    :raises OSError: it can't be read.
    """
    description = describe(path)
    return next((one for one in SYSTEMS if one.program_format == description), None)


def wrong(path: Path, program: Program) -> str | None:
    """The same for a requested program; the sentence names it."""
    why = problem(path, program.os)
    return f"{program}: {why}" if why else None


def describe(path: Path) -> str:
    """What the file is, for display; for a program on amd64, its system's ``program_format``.

    :raises OSError: it can't be read.
    """
    with path.open("rb") as file:
        head = file.read(64)
        if not head:
            return "empty"
        if head.startswith(b"\x7fELF") and len(head) >= 20:
            order = ">" if head[5] == 2 else "<"
            (machine,) = struct.unpack_from(order + "H", head, 18)
            if machine == _ELF_AMD64 and head[4] != 2:
                return "a Linux program (ELF) for x32"
            if machine == _ELF_AMD64:
                return LINUX.program_format
            return f"a Linux program (ELF) for {_ELF_MACHINES.get(machine, f'machine {machine}')}"
        if head.startswith(b"MZ") and len(head) == 64:
            (offset,) = struct.unpack_from("<I", head, 0x3C)
            file.seek(offset)
            coff = file.read(6)
            if coff[:4] == b"PE\0\0" and len(coff) == 6:
                (machine,) = struct.unpack_from("<H", coff, 4)
                if machine == _PE_AMD64:
                    return WINDOWS.program_format
                return f"a Windows program (PE) for {_PE_MACHINES.get(machine, f'machine {machine:#x}')}"
            return "a DOS program"
    if head.startswith((b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")):
        return "a program for macOS"
    if head.startswith(b"#!"):
        return "a script"
    if head.lstrip()[:1] == b"<":
        return "a web page"
    return "no program"
