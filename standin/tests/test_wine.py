"""Wine in the stand-in's root: what is kept of it, and the shims."""

from __future__ import annotations

import struct
from pathlib import Path

from winlab_standin.builder import shims
from winlab_standin.guest import wineroot


def pe(imports: list[str]) -> bytes:
    """A Windows DLL with one section, which holds an import directory."""
    header, optional, start = 0x80, 240, 0x200
    dll = bytearray(0x1000)
    struct.pack_into("<I", dll, 0x3C, header)
    struct.pack_into("<HH", dll, header + 4, 0x8664, 1)
    struct.pack_into("<H", dll, header + 20, optional)
    struct.pack_into("<II", dll, header + 24 + 112 + 8, 0x1000 if imports else 0, 40)
    struct.pack_into("<IIII", dll, header + 24 + optional + 8, 0x800, 0x1000, 0x800, start)
    names = 0x200
    for index, name in enumerate(imports):
        struct.pack_into("<I", dll, start + 20 * index + 12, 0x1000 + names)
        dll[start + names : start + names + len(name)] = name.encode()
        names += len(name) + 1
    return bytes(dll)


def test_imports() -> None:
    assert wineroot.imports(pe(["KERNEL32.dll", "ntdll.dll"])) == ["kernel32.dll", "ntdll.dll"]
    assert wineroot.imports(pe([])) == []


def test_needed_of_a_real_library() -> None:
    """Python's own interpreter, or the library that it is in, needs the C library."""
    import _struct
    import sys

    place = getattr(_struct, "__file__", None) or sys.executable
    assert any(name.startswith("lib") for name in wineroot.needed(Path(place).resolve().read_bytes()))
    assert wineroot.needed(b"#!/bin/sh\n") == []


def test_closure() -> None:
    graph = {"a": ["b", "gone"], "b": ["a"], "c": []}
    assert wineroot.closure(["a"], graph.get) == {"a", "b"}


def test_exports_of_the_shims() -> None:
    folder = Path(shims.__file__).parent.parent / "shims"
    found = {name: shims.exports((folder / f"{name}.c").read_text()) for name in shims.NAMES}
    assert found["powrprof"] == [
        "PowerRegisterSuspendResumeNotification",
        "PowerUnregisterSuspendResumeNotification",
    ]
    assert "PdhGetFormattedCounterArrayW" in found["pdh"]
    assert len(found["pdh"]) == 9


def test_the_registry_names_one_windows() -> None:
    assert '"UBR"=dword:00000aca' in wineroot.REGISTRY
    assert '"ServicesPipeTimeout"="240000"' in wineroot.REGISTRY
