"""Wine in the stand-in's root: what is kept of it, and the shims."""

from __future__ import annotations

import struct
from pathlib import Path

from winlab_standin.builder import shims
from winlab_standin.guest import wine, wineroot
from winlab_standin.guest.releases import RELEASES, Windows


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
    """What programs see is the release on the disk, whatever Wine called itself when its registry was made."""
    key = "[Software\\\\Microsoft\\\\Windows NT\\\\CurrentVersion"
    rows = f'{key}] 17\n#time=1\n"CurrentBuild"="19045"\n"PathName"="x"\n\n'
    made = f'WINE REGISTRY Version 2\n\n{rows}{key}\\\\Fonts] 17\n"UBR"="f"\n'
    text = wine.registry(made, Windows(RELEASES["2019"], "ServerDatacenterEval"), 7, "[Services] 1\n")
    section, fonts = text.partition(f"{key}] 17\n")[2].split(f"{key}\\\\Fonts]")
    found = section.split()
    assert '"CurrentBuild"="17763"' in found
    assert '"UBR"=dword:00000e42' in found
    assert '"ProductName"="Windows Server 2019 Datacenter Evaluation"' in section
    assert '"PathName"="x"' in found
    assert "#time=1" in found
    assert "19045" not in text
    assert "DisplayVersion" not in text
    assert '"UBR"="f"' in fonts
    assert text.endswith("[Services] 1\n")
    assert f"{key}] 1\n" in wine.registry("WINE REGISTRY Version 2\n", Windows(), 7, "")
    assert "CurrentBuild" not in wineroot.REGISTRY
    assert '"ServicesPipeTimeout"="240000"' in wineroot.REGISTRY
