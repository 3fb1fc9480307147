"""The stand-in's Wine, out of the media that --rehearse takes: small, prepared, and the release that was installed."""

from __future__ import annotations

import json
import shutil
import subprocess  # noqa: TID251 - looks at what was built, and runs it
from pathlib import Path

import pytest
from windows_wine import enter

from winlab_standin.builder import shims
from winlab_standin.guest.releases import RELEASES, Release

# What the installed system does at its start (installed.py), with a C: of its own, then some questions
PLAY = r"""
import json, pathlib, subprocess
for folder in ("/c/Windows/System32/config", "/run/standin", "/c/d"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
pathlib.Path("/c/Windows/System32/config/kept").write_text("1")
from winlab_standin.guest import releases, wine, winservices
releases.record(releases.Windows(releases.RELEASES["@RELEASE@"], "ServerDatacenterEval"), pathlib.Path("/c"))
wine.arrange()
unit = winservices.Unit("trial", r"C:\Windows\System32\svchost.exe -k trial")
wine.prepare(releases.installed(pathlib.Path("/c")), 7, winservices.registry_text([unit]))
wine.start()
wine.drive("D", pathlib.Path("/c/d"))
current = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
memory = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
print(json.dumps({
    "ver": wine.call(["cmd", "/c", "ver"])[1],
    "build": wine.query(current, "CurrentBuild"),
    "revision": wine.query(current, "UBR"),
    "name": wine.query(current, "ProductName"),
    "major": wine.query(current, "CurrentMajorVersionNumber"),
    "boots": wine.query(memory, "BootId"),
    "service": wine.query(r"HKLM\SYSTEM\CurrentControlSet\Services\trial", "ImagePath"),
    "written": wine.call(["cmd", "/c", r"echo x>D:\x.txt && echo y>C:\Windows\System32\config\y.txt"])[0],
    "seen": sorted(str(path) for path in pathlib.Path("/run/volume").rglob("*") if path.is_file()),
    "failed": wine.call(["nosuch.exe"])[0],
}))
wine.call(["wineboot", "--shutdown"])
subprocess.run(["wineserver", "-k"], check=False)
"""


@pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))
def test_wine_starts_as_the_release_on_the_disk(standin_root: Path, tmp_path: Path, release: Release) -> None:
    """The very values that kubelet.exe reports to the cluster; ``ver`` is what other programs see."""
    found = json.loads(enter(standin_root, PLAY.replace("@RELEASE@", release.name), tmp_path).splitlines()[-1])
    assert f"Microsoft Windows 10.0.{release.build}" in found["ver"]
    assert (found["build"], found["revision"]) == (str(release.build), hex(release.revision))
    assert (found["name"], found["major"]) == (f"Windows Server {release.name} Datacenter Evaluation", "0xa")
    assert found["boots"] == "0x7"
    assert found["service"] == r"C:\Windows\System32\svchost.exe -k trial"
    assert found["written"] == 0
    assert found["failed"] != 0
    # C:\Windows is Wine's over the volume's, but nothing of Wine's comes to lie on the volume
    kept = "/run/volume/Windows/System32/config"
    assert found["seen"] == [f"{kept}/kept", f"{kept}/standin-windows.json", f"{kept}/y.txt", "/run/volume/d/x.txt"]


# As probe.ps1 has it
DIGEST = "[System.Security.Cryptography.SHA256]::Create().ComputeHash([byte[]](1, 2)).Length"


def test_a_powershell_engine_finds_its_libraries(standin_root: Path, engine: Path, tmp_path: Path) -> None:
    """Whatever else the root is cut down to. Digests are OpenSSL's, which is loaded when it is needed."""
    shutil.copytree(engine.parent, tmp_path / "engine")
    words = [f"/work/engine/{engine.name}", "-NoProfile", "-Command", DIGEST]
    told = enter(standin_root, f"import subprocess; subprocess.run({words!r}, check=True)", tmp_path)
    assert told.split() == ["32"]


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
