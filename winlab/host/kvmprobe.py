"""Whether KVM really works, found by running a guest under it.

With some nested hypervisors /dev/kvm opens, machines can be created, and libvirt lists ``kvm``, but no guest gets far.
One that was seen interprets every instruction of the guest in software. It is a hundred times slower than QEMU's own
emulation, and an ordinary kernel dies at its first VEX instruction ("KVM internal error. Suberror: 1", "emulation
failure").

The guest here is a firmware image of 64 KiB. It boots like every x86 system: real mode, protected mode, page tables,
64-bit mode. Then it waits with ``hlt`` for three ticks of the local APIC's timer, loops 20 million times, and executes
a BMI2 instruction if CPUID reports one. Finally it signals through QEMU's isa-debug-exit device. The loop takes
about 10 ms on hardware and 0.1 s under emulation (TCG).
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from winlab.errors import HostError
from winlab.run import find, run

SIGNAL = 0x2A
EXIT_CODE = (SIGNAL << 1) | 1  # QEMU's resulting exit code (hw/misc/debugexit.c)
TCG_LIMIT = 30.0  # seconds
KVM_LIMIT = 2.5  # seconds, at least; a machine that is slow under emulation gets more
SLOWER = 8  # times as long as emulation: then KVM is useless
SIZE = 0x10000
BASE = 0xF0000  # the firmware's last 64 KiB are also seen here, below 1 MiB
GDT, GDT_POINTER, IDT_POINTER, TICK = 0x160, 0x180, 0x188, 0x1A0
IDT = 0x4000  # in memory, which QEMU zeroes
PML4, PDPT, LOW, HIGH = 0x1000, 0x2000, 0x3000, 0x5000

# Instructions as bytes, with their assembly source. payload() puts each block at its address.
REAL_MODE = """
    fa                          cli
    fc                          cld
    66 2e 0f 01 16 80 01        lgdtl   %cs:GDT_POINTER
    0f 20 c0                    mov     %cr0, %eax
    66 25 ff ff ff 9f           and     $~(CD|NW), %eax         caches on, as firmware does
    0c 01                       or      $PE, %al
    0f 22 c0                    mov     %eax, %cr0
    66 ea 28 00 0f 00 08 00     ljmpl   $0x08, $BASE + 0x28
"""
PROTECTED_MODE = """
    b8 10 00 00 00              mov     $0x10, %eax
    8e d8                       mov     %eax, %ds
    8e c0                       mov     %eax, %es
    8e d0                       mov     %eax, %ss
    c7 05 00 10 00 00 03 20 00 00   movl $PDPT|RW|P, PML4
    c7 05 00 20 00 00 03 30 00 00   movl $LOW|RW|P, PDPT
    c7 05 18 20 00 00 03 50 00 00   movl $HIGH|RW|P, PDPT + 3 * 8     the fourth GiB
    c7 05 00 30 00 00 83 00 00 00   movl $PS|RW|P, LOW                the first 2 MiB
    c7 05 b8 5f 00 00 93 00 e0 fe   movl $APIC|PS|PCD|RW|P, HIGH + 0x1f7 * 8
    b8 00 10 00 00              mov     $PML4, %eax
    0f 22 d8                    mov     %eax, %cr3
    0f 20 e0                    mov     %cr4, %eax
    83 c8 20                    or      $PAE, %eax
    0f 22 e0                    mov     %eax, %cr4
    b9 80 00 00 c0              mov     $IA32_EFER, %ecx
    0f 32                       rdmsr
    0d 00 01 00 00              or      $LME, %eax
    0f 30                       wrmsr
    0f 20 c0                    mov     %cr0, %eax
    0d 00 00 00 80              or      $PG, %eax
    0f 22 c0                    mov     %eax, %cr0
    ea a0 00 0f 00 18 00        ljmp    $0x18, $BASE + 0xa0
"""
LONG_MODE = """
    bc 00 80 00 00              mov     $0x8000, %esp
    c7 04 25 00 42 00 00 a0 01 18 00    movl $0x18 << 16 | TICK, IDT + 0x20 * 16
    c7 04 25 04 42 00 00 00 8e 0f 00    movl $BASE | 0x8e00, IDT + 0x20 * 16 + 4
    0f 01 1c 25 88 01 0f 00     lidt    BASE + IDT_POINTER
    bf 00 00 e0 fe              mov     $APIC, %edi
    c7 87 f0 00 00 00 ff 01 00 00   movl $0x1ff, SVR(%rdi)            APIC on
    c7 87 e0 03 00 00 0b 00 00 00   movl $0xb, DIVIDE(%rdi)           by one
    c7 87 20 03 00 00 20 00 02 00   movl $0x20020, LVT_TIMER(%rdi)    periodic, vector 0x20
    c7 87 80 03 00 00 40 42 0f 00   movl $1000000, COUNT(%rdi)
    31 db                       xor     %ebx, %ebx
    fb                          sti
    f4                       1: hlt
    83 fb 03                    cmp     $3, %ebx
    72 fa                       jb      1b
    fa                          cli
    b9 00 2d 31 01              mov     $20000000, %ecx
    ff c9                    2: dec     %ecx
    75 fc                       jnz     2b
    b8 07 00 00 00              mov     $7, %eax
    31 c9                       xor     %ecx, %ecx
    0f a2                       cpuid
    0f ba e3 08                 bt      $BMI2, %ebx
    73 0f                       jnc     3f
    b9 03 00 00 00              mov     $3, %ecx
    ba 01 00 00 00              mov     $1, %edx
    c4 e2 71 f7 c2              shlx    %ecx, %edx, %eax
    b0 2a                    3: mov     $SIGNAL, %al
    e6 f4                       out     %al, $0xf4
    f4                       4: hlt
    eb fd                       jmp     4b
"""
ON_TICK = """
    ff c3                       inc     %ebx
    c7 87 b0 00 00 00 00 00 00 00   movl $0, EOI(%rdi)
    48 cf                       iretq
"""
RESET = """
    ea 00 00 00 f0              ljmpw   $0xf000, $0
"""


@dataclass(frozen=True)
class Probe:
    """The result of running the guest: whether it signalled, after how many seconds, and if not, why not."""

    works: bool
    seconds: float
    why: str = ""


def _bytes(listing: str) -> bytes:
    """The bytes at the start of each line: words of two hexadecimal digits."""
    code = bytearray()
    for line in listing.splitlines():
        for word in line.split():
            if len(word) != 2 or word[1] == ":" or not set(word) <= set("0123456789abcdef"):
                break
            code.append(int(word, 16))
    return bytes(code)


def payload() -> bytes:
    """The firmware image: 64 KiB, mapped at the end of the first 4 GiB and below 1 MiB."""
    rom = bytearray(SIZE)

    def put(offset: int, data: bytes) -> None:
        assert not any(rom[offset : offset + len(data)]), f"blocks overlap at {offset:#x}"
        rom[offset : offset + len(data)] = data

    put(0x00, _bytes(REAL_MODE))
    put(0x28, _bytes(PROTECTED_MODE))
    put(0xA0, _bytes(LONG_MODE))
    put(TICK, _bytes(ON_TICK))
    # Flat 32-bit code, flat data, 64-bit code; marked accessed, because the processor can't do that in a ROM.
    put(GDT, struct.pack("<4Q", 0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF, 0x00AF9B000000FFFF))
    put(GDT_POINTER, struct.pack("<HI", 4 * 8 - 1, BASE + GDT))
    put(IDT_POINTER, struct.pack("<HQ", 0x21 * 16 - 1, IDT))
    put(SIZE - 16, _bytes(RESET))
    return bytes(rom)


def command(accelerator: Literal["kvm", "tcg"], firmware: Path) -> list[str]:
    """The QEMU command that runs the guest: no devices but the one that signals."""
    machine = ["-machine", "pc", "-m", "16", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    cpu = "host" if accelerator == "kvm" else "max"
    return [
        *("qemu-system-x86_64", "-accel", accelerator, "-cpu", cpu, *machine, "-bios", str(firmware)),
        *("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
    ]


def probe_kvm() -> Probe:
    """Whether KVM works. The guest first runs under emulation, which also shows how slow this machine is."""
    if not Path("/dev/kvm").exists():
        return Probe(False, 0.0, "There is no /dev/kvm: virtualisation is off in the firmware, or this is a guest.")
    emulated = probe("tcg", TCG_LIMIT)
    if not emulated.works:
        return Probe(False, emulated.seconds, f"QEMU can't even run the guest without KVM. {emulated.why}")
    return probe("kvm", max(KVM_LIMIT, SLOWER * emulated.seconds))


def probe(accelerator: Literal["kvm", "tcg"], limit: float) -> Probe:
    """Run the guest under *accelerator*, and check that it signals within *limit* seconds. Raises nothing."""
    if find("qemu-system-x86_64") is None:
        return Probe(False, 0.0, "QEMU is not installed.")
    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:
        firmware = Path(folder) / "probe.bin"
        firmware.write_bytes(payload())
        try:
            done = run(command(accelerator, firmware), check=False, timeout=limit)
        except HostError as error:
            return Probe(False, limit, _why_late(error, limit))
    if done.returncode == EXIT_CODE:
        return Probe(True, done.seconds)
    said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    return Probe(False, done.seconds, f"QEMU ended with exit code {done.returncode}: {said}")


def _why_late(error: HostError, limit: float) -> str:
    """QEMU's messages before it was stopped, if they are informative."""
    said = ""
    for cause in error.causes:
        raw = getattr(cause, "stderr", None) or b""
        said += raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    line = next((line for line in said.splitlines() if "KVM internal error" in line or "failed" in line), "")
    return f"A guest that needs a fraction of a second was not done after {limit:.1f} s. {line}".strip()
