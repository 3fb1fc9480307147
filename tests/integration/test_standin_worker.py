"""The stand-in's Wine, out of the media that --rehearse takes: small, prepared, and Windows Server 2022 by its word."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - looks at what was built, and runs it
from pathlib import Path

from windows_wine import enter

from winlab_standin.builder import shims

# What the installed system does at its start (installed.py), with a C: of its own, then two questions
PLAY = r"""
import json, pathlib, subprocess
for folder in ("/c/Windows/System32/config", "/run/standin", "/c/d"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
pathlib.Path("/c/Windows/System32/config/kept").write_text("1")
from winlab_standin.guest import wine, winservices
wine.arrange()
unit = winservices.Unit("trial", r"C:\Windows\System32\svchost.exe -k trial")
wine.prepare(7, winservices.registry_text([unit]))
wine.start()
wine.drive("D", pathlib.Path("/c/d"))
current = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
memory = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
print(json.dumps({
    "ver": wine.call(["cmd", "/c", "ver"])[1],
    "build": wine.query(current, "CurrentBuild"),
    "revision": wine.query(current, "UBR"),
    "boots": wine.query(memory, "BootId"),
    "service": wine.query(r"HKLM\SYSTEM\CurrentControlSet\Services\trial", "ImagePath"),
    "written": wine.call(["cmd", "/c", r"echo x>D:\x.txt && echo y>C:\Windows\System32\config\y.txt"])[0],
    "seen": sorted(str(path) for path in pathlib.Path("/run/volume").rglob("*") if path.is_file()),
    "failed": wine.call(["nosuch.exe"])[0],
}))
wine.call(["wineboot", "--shutdown"])
subprocess.run(["wineserver", "-k"], check=False)
"""


def test_wine_starts_as_windows_server_2022(standin_root: Path, tmp_path: Path) -> None:
    found = json.loads(enter(standin_root, PLAY, tmp_path).splitlines()[-1])
    assert "Microsoft Windows 10.0.20348" in found["ver"]
    assert (found["build"], found["revision"], found["boots"]) == ("20348", "0xaca", "0x7")
    assert found["service"] == r"C:\Windows\System32\svchost.exe -k trial"
    assert found["written"] == 0
    assert found["failed"] != 0
    # C:\Windows is Wine's over the volume's, but nothing of Wine's comes to lie on the volume
    kept = "/run/volume/Windows/System32/config"
    assert found["seen"] == [f"{kept}/kept", f"{kept}/y.txt", "/run/volume/d/x.txt"]


def test_wine_is_small(standin_root: Path) -> None:
    """Wine's 750 modules are 700 MB: the closure of what is needed is a tenth of that."""
    modules = list((standin_root / "usr/lib/x86_64-linux-gnu/wine/x86_64-windows").iterdir())
    assert 50 < len(modules) < 120
    assert sum(path.stat().st_size for path in modules) < 80 << 20
    assert {"kernel32.dll", "services.exe", "ncrypt.dll", "xcopy.exe"} <= {path.name for path in modules}


def test_the_shims(tmp_path: Path, standin_root: Path) -> None:
    """The linker of this host makes Windows DLLs; the media have the same."""
    made = shims.make(tmp_path)
    sources = Path(shims.__file__).parent.parent / "shims"
    for name, content in made.items():
        assert (standin_root / "usr/lib/standin/wine/windows/system32" / name).read_bytes() == content
        (tmp_path / name).write_bytes(content)
        shown = subprocess.run(["objdump", "-p", tmp_path / name], capture_output=True, text=True, check=True).stdout
        assert "file format pei-x86-64" in shown
        assert "DLL Name: KERNEL32.dll" in shown or "DLL Name: kernel32.dll" in shown
        for function in shims.exports((sources / f"{Path(name).stem}.c").read_text()):
            assert function in shown
