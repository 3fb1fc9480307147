"""Makes Wine small and ready while the media are built: the new root's own Python runs it there.

``python3 -m winlab_standin.guest.wineroot prune`` keeps only those of Wine's 750 Windows modules that are named here,
the modules that these import, and the shared libraries that they still need. ``... prefix`` then makes Wine's registry
and its Windows folder, which the installed system finds in :data:`PREFIX`.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from winlab_standin.guest.base import run

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
PREFIX = Path("/usr/lib/standin/wine")
SHIMS = Path("/usr/lib/standin/shims")
# What Wine itself starts, the commands that the stand-in uses, and what programs written in Go load by name.
MODULES = [
    "wineboot.exe",
    "services.exe",
    "winedevice.exe",
    "plugplay.exe",
    "svchost.exe",
    "rpcss.exe",
    "explorer.exe",
    "conhost.exe",
    "rundll32.exe",
    "cmd.exe",
    "net.exe",
    "sc.exe",
    "reg.exe",
    "regedit.exe",
    "taskkill.exe",
    "tasklist.exe",
    "start.exe",
    "hostname.exe",
    "xcopy.exe",
    "powershell.exe",
    "mountmgr.sys",
    "nsiproxy.sys",
    "ksecdd.sys",
    "newdev.dll",
    "kernel32.dll",
    "ntdll.dll",
    "advapi32.dll",
    "ws2_32.dll",
    "mswsock.dll",
    "iphlpapi.dll",
    "dnsapi.dll",
    "netapi32.dll",
    "secur32.dll",
    "shell32.dll",
    "userenv.dll",
    "crypt32.dll",
    "psapi.dll",
    "version.dll",
    "wintrust.dll",
    "ole32.dll",
    "oleaut32.dll",
    "winmm.dll",
    "bcryptprimitives.dll",
    "bcrypt.dll",
    "rsaenh.dll",
    "schannel.dll",
    "setupapi.dll",
    "cfgmgr32.dll",
    "imm32.dll",
    "user32.dll",
    "wevtapi.dll",
    "wtsapi32.dll",
    "dhcpcsvc.dll",
    "ncrypt.dll",
    "cryptbase.dll",
    "dwmapi.dll",
    "cryptnet.dll",
]
# The Linux halves of these modules
UNIX = ["bcrypt", "crypt32", "dnsapi", "mountmgr", "netapi32", "nsiproxy", "ntdll", "secur32", "win32u", "ws2_32"]
# loaded by name at run time, so no import names them
LOADED = ("libgnutls.so.30", "libfreetype.so.6", "libfontconfig.so.1", "libnss_files.so.2", "libnss_dns.so.2")
# for the PowerShell engine, which the media may have beside the root: .NET loads OpenSSL by its name
ENGINE = ("libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libssl.so.3", "libstdc++.so.6")
PLUGINS = ("gstreamer", "gdk-pixbuf", "libgphoto2", "libheif", "pulseaudio", "vdpau", "alsa", "dri", "gio", "libv4l")
REGISTRY = r"""Windows Registry Editor Version 5.00

[HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion\ProfileList]
; Without it no program finds %ProgramData%, under which containerd.exe keeps everything
"ProfilesDirectory"="C:\\Users"
"ProgramData"="C:\\ProgramData"
"Public"="C:\\Users\\Public"

[HKEY_LOCAL_MACHINE\SYSTEM\HardwareConfig]
"LastConfig"="{12345678-1234-1234-1234-123456789abc}"

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control]
; Milliseconds, and text: Wine's service manager reads nothing else, and with its own 10 s a program as large as
; kubelet.exe is killed while it starts on a slow machine
"ServicesPipeTimeout"="240000"

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\Session Manager\Environment]
"TEMP"="C:\\Windows\\Temp"
"TMP"="C:\\Windows\\Temp"

[HKEY_CURRENT_USER\Environment]
"TEMP"="C:\\Windows\\Temp"
"TMP"="C:\\Windows\\Temp"

[HKEY_CURRENT_USER\Software\Wine\DllOverrides]
"pdh"="native"
"powrprof"="native"

[HKEY_CURRENT_USER\Software\Wine\Drivers]
; No window system: without this Wine looks for one again and again
"Graphics"="null"
"""


def imports(dll: bytes) -> list[str]:
    """The modules that a Windows program or DLL imports from, in lower case (Microsoft, "PE Format")."""
    header = struct.unpack_from("<I", dll, 0x3C)[0]
    count, size = struct.unpack_from("<H", dll, header + 6)[0], struct.unpack_from("<H", dll, header + 20)[0]
    sections = [struct.unpack_from("<IIII", dll, header + 24 + size + 40 * index + 8) for index in range(count)]

    def place(address: int) -> int:
        for virtual, start, raw, offset in sections:
            if start <= address < start + max(virtual, raw):
                return int(address - start + offset)
        raise ValueError(f"address {address:#x} is in no section")

    found = []
    # The import directory (entry 1: descriptors of 20 bytes, name at 12), the delayed one (entry 13: 32 bytes, at 4)
    for entry, length, at in ((1, 20, 12), (13, 32, 4)):
        directory = struct.unpack_from("<I", dll, header + 24 + 112 + 8 * entry)[0]
        if not directory:
            continue
        row = place(directory)
        while name := struct.unpack_from("<I", dll, row + at)[0]:
            start = place(name)
            found.append(dll[start : dll.index(b"\0", start)].decode("ascii").lower())
            row += length
    return found


def needed(elf: bytes) -> list[str]:
    """The shared libraries that a program or library for 64-bit Linux needs (ELF, ``DT_NEEDED``)."""
    if elf[:5] != b"\x7fELF\x02":
        return []
    offset, size, count = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    found = []
    for index in range(count):
        row = offset + index * size
        kind, link = struct.unpack_from("<I", elf, row + 4)[0], struct.unpack_from("<I", elf, row + 40)[0]
        if kind != 6:  # SHT_DYNAMIC
            continue
        start, length = struct.unpack_from("<QQ", elf, row + 24)
        strings = struct.unpack_from("<Q", elf, offset + link * size + 24)[0]
        for entry in range(start, start + length, 16):
            tag, value = struct.unpack_from("<QQ", elf, entry)
            if tag == 1:  # DT_NEEDED
                text = strings + value
                found.append(elf[text : elf.index(b"\0", text)].decode("ascii"))
    return found


def closure(names: Iterable[str], needs: Callable[[str], list[str] | None]) -> set[str]:
    """*names* and all that they need. *needs* returns what one needs, or None if it does not exist."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        more = needs(name)
        if more is not None:
            found.add(name)
            queue += more
    return found


def _modules() -> None:
    folder = LIBRARIES / "wine/x86_64-windows"

    def needs(name: str) -> list[str] | None:
        path = folder / name
        return imports(path.read_bytes()) if path.is_file() else None

    keep = closure(MODULES, needs)
    for path in folder.iterdir():
        if path.name not in keep:
            path.unlink()
    for path in (LIBRARIES / "wine/x86_64-unix").iterdir():
        if path.stem not in UNIX:
            path.unlink()
    shutil.rmtree(LIBRARIES / "wine/i386-windows", ignore_errors=True)


def _libraries() -> None:
    """Remove the shared libraries that nothing needs any more, and the plug-ins of media libraries."""
    for path in LIBRARIES.iterdir():
        if path.is_dir() and path.name.startswith(PLUGINS):
            shutil.rmtree(path)
    users = [path for folder in ("/usr/bin", "/usr/sbin", "/usr/libexec") for path in Path(folder).rglob("*")]
    users += [path for path in Path("/usr/lib").rglob("*") if path.parent != LIBRARIES]
    start = {*LOADED, *ENGINE}
    for path in users:
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                elf = file.read(4) == b"\x7fELF"
            start |= set(needed(path.read_bytes())) if elf else set()

    def needs(name: str) -> list[str] | None:
        path = LIBRARIES / name
        return needed(path.read_bytes()) if path.is_file() else None

    keep = closure(start, needs)
    real = {(LIBRARIES / name).resolve() for name in keep}
    for path in LIBRARIES.iterdir():
        if ".so" in path.name and path.is_file() and path.resolve() not in real:
            path.unlink()
    for path in LIBRARIES.iterdir():
        if path.is_symlink() and not path.exists():
            path.unlink()


def _prefix() -> None:
    """Make the prefix as a user's first start would, then add the registry's values and the shims."""
    from winlab_standin.guest.wine import ENVIRONMENT, QUIET

    environment = {**ENVIRONMENT, "WINEPREFIX": str(PREFIX), "HOME": "/root"}
    # services that a call starts would keep its pipes open
    run(["sh", "-c", QUIET, "sh", "wine", "wineboot", "--init"], env=environment, timeout=300)
    values = PREFIX / "drive_c/standin.reg"
    values.write_text(REGISTRY, encoding="ascii", newline="\r\n")
    run(["sh", "-c", QUIET, "sh", "wine", "reg", "import", r"C:\standin.reg"], env=environment, timeout=300)
    run(["wineserver", "--kill"], env=environment, check=False)
    run(["wineserver", "--wait"], env=environment, timeout=60, check=False)
    windows = PREFIX / "drive_c/windows"
    for shim in SHIMS.iterdir():
        shutil.copyfile(shim, windows / "system32" / shim.name)
    windows.rename(PREFIX / "windows")
    for name in ("drive_c", "dosdevices"):
        shutil.rmtree(PREFIX / name)
    for name in ("syswow64", "Installer", "logs", "tasks", "temp", "twain_64", "system32/drivers/etc"):
        shutil.rmtree(PREFIX / "windows" / name, ignore_errors=True)


def main() -> None:
    """Do the step that the command line names."""
    if sys.argv[1] == "prune":
        _modules()
        _libraries()
    else:
        os.umask(0o022)
        _prefix()


if __name__ == "__main__":
    main()
