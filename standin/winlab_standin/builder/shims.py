"""The two small DLLs that real Windows programs need under Wine 10; shims/*.c says what each does.

They are compiled with the tools that make the boot programs, gcc and binutils. Debian's and Ubuntu's ``ld`` can write
Windows programs (its emulation ``i386pep``), and gcc knows Windows' calling convention. So no cross compiler has to be
fetched. The DLLs import from kernel32.dll alone; the linker learns that DLL's names from an empty one made here.
"""

from __future__ import annotations

import re
from pathlib import Path

from winlab.run import run

NAMES = ("pdh", "powrprof")
PACKAGES = "Install the packages gcc and binutils."
KERNEL32 = ("CopyFileW", "GetModuleHandleW", "GlobalMemoryStatusEx", "VirtualProtect")
_SOURCE = Path(__file__).parent.parent / "shims"
# -fpie: addresses relative to the instruction, because a DLL may be anywhere. The other flags: no C library and no
# runtime of Linux, which Windows does not have, and no notes that the linker would put into the DLL.
_FLAGS = [
    "-c",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fpie",
    "-fvisibility=hidden",
    "-mno-red-zone",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-ident",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fno-asynchronous-unwind-tables",
]


def exports(source: str) -> list[str]:
    """The functions that a shim provides: those that its source marks with EXPORT."""
    return re.findall(r"^EXPORT \w+ (\w+)\(", source, re.MULTILINE)


def _compile(source: Path, work: Path) -> Path:
    thing = work / f"{source.stem}.o"
    run(["gcc", *_FLAGS, "-I", _SOURCE, source, "-o", thing], cure=PACKAGES)
    run(["objcopy", "-R", ".comment", "-R", ".note.GNU-stack", "-R", ".note.gnu.property", thing], cure=PACKAGES)
    return thing


def _link(name: str, thing: Path, functions: list[str] | tuple[str, ...], others: list[Path], work: Path) -> Path:
    definition, dll = work / f"{name}.def", work / f"{name}.dll"
    definition.write_text("\n".join([f"LIBRARY {name}.dll", "EXPORTS", *functions, ""]), encoding="ascii")
    options = ["-m", "i386pep", "-shared", "-s", "--no-insert-timestamp", "-e", "DllMainCRTStartup", "-o"]
    run(["ld", *options, dll, thing, definition, *others], cure=PACKAGES)
    return dll


def make(work: Path) -> dict[str, bytes]:
    """Compile the shims in *work*: file name to content.

    :raises HostError: gcc or ld is not installed.
    :raises CommandError: ld can't write Windows programs; the cure names the packages.
    """
    stub = work / "kernel32.c"
    functions = [*KERNEL32, "DllMainCRTStartup"]
    stub.write_text("".join(f"void {name}(void);\nvoid {name}(void) {{}}\n" for name in functions), encoding="ascii")
    kernel32 = _link("kernel32", _compile(stub, work), KERNEL32, [], work)
    made = {}
    for name in NAMES:
        source = _SOURCE / f"{name}.c"
        found = exports(source.read_text(encoding="utf-8"))
        made[f"{name}.dll"] = _link(name, _compile(source, work), found, [kernel32], work).read_bytes()
    return made
