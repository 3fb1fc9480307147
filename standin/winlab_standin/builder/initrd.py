"""The initial RAM disk of the stand-in, made without root: kernel modules in a cpio archive that this module writes."""

from __future__ import annotations

import gzip
import lzma
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from winlab.errors import WinlabError

# Loaded by name or for a device that exists; the modules that they need are found by reading them.
WANTED = (
    "virtio_pci,virtio_scsi,virtio_blk,virtio_net,virtio_console,virtio_rng,virtio_balloon,e1000e,e1000,"
    "ahci,ata_piix,sd_mod,sr_mod,nvme,udf,isofs,ntfs3,vfat,nls_cp437,nls_iso8859_1,nls_utf8,nls_ascii,"
    "squashfs,loop,overlay,efivarfs,button,evdev,xhci_pci,usbhid,hid_generic,af_packet"
)
APPLETS = "sh,mount,umount,modprobe,insmod,losetup,switch_root,sleep,mkdir,cat,sort,cp,echo,dmesg,grep,reboot"

Modules = dict[str, bytes]  # name, with underscores, to the module's ELF file


def _info(elf: bytes, key: str) -> list[str]:
    """The values of *key* in a module's ``.modinfo`` section: a list of ``key=value`` strings that end with a NUL."""
    return [found.decode() for found in re.findall(rb"(?:^|\0)" + key.encode() + rb"=([^\0]*)\0", elf)]


def _name(path: str) -> str:
    return PurePosixPath(path).name.partition(".ko")[0].replace("-", "_")


def choose(
    files: dict[str, bytes], builtin: Iterable[str], wanted: Iterable[str] = tuple(WANTED.split(","))
) -> Modules:
    """The modules of *wanted* and all that they need, from compressed module *files* (path to content).

    :raises WinlabError: a module is neither among the files nor built into the kernel.
    """
    paths = {_name(path): path for path in files}
    inside = {_name(path) for path in builtin}
    chosen: Modules = {}
    queue = [name.replace("-", "_") for name in wanted]
    while queue:
        name = queue.pop()
        if name in chosen or name in inside:
            continue
        if name not in paths:
            raise WinlabError(
                f"The kernel package holds no module '{name}'.", why="The kernel's configuration changed."
            )
        data = files[paths[name]]
        elf = lzma.decompress(data) if paths[name].endswith(".xz") else data
        chosen[name] = elf
        queue += [need.replace("-", "_") for line in _info(elf, "depends") for need in line.split(",") if need]
    return chosen


def _needs(name: str, modules: Modules) -> list[str]:
    """All that *name* needs, in the order in which ``modules.dep`` lists it: the last is loaded first."""
    order: list[str] = []

    def visit(module: str) -> None:
        for line in _info(modules[module], "depends"):
            for need in (word.replace("-", "_") for word in line.split(",") if word):
                if need in modules and need not in order:
                    visit(need)
                    order.append(need)

    visit(name)
    return order[::-1]


def tables(modules: Modules) -> tuple[str, str]:
    """The texts of ``modules.dep`` and ``modules.alias``."""
    dependencies = [
        f"{name}.ko:{''.join(f' {need}.ko' for need in _needs(name, modules))}\n" for name in sorted(modules)
    ]
    aliases = [f"alias {alias} {name}\n" for name in sorted(modules) for alias in _info(modules[name], "alias")]
    return "".join(dependencies), "".join(aliases)


class Cpio:
    """A cpio archive in the "newc" format (Linux, Documentation/driver-api/early-userspace/buffer-format)."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._inode = 0

    def _add(self, name: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        self._inode += 1
        fields = [self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
        self._data += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self._data += b"\0" * (-len(self._data) % 4) + content
        self._data += b"\0" * (-len(self._data) % 4)

    def folder(self, name: str) -> None:
        """Add a folder."""
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, content: bytes, mode: int = 0o755) -> None:
        """Add a file."""
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def console(self) -> None:
        """Add ``/dev/console``, without which the first program has no output."""
        self._add("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))

    def bytes(self) -> bytes:
        """The whole archive."""
        done = Cpio()
        done._data = bytearray(self._data)
        done._add("TRAILER!!!", 0, b"")
        return bytes(done._data)


def make(release: str, modules: Modules, busybox: bytes, init: bytes) -> bytes:
    """The initial RAM disk: gzip of cpio. *release* is the kernel's, as ``uname -r`` prints it."""
    archive = Cpio()
    home = f"lib/modules/{release}"
    for folder in ("bin", "dev", "proc", "sys", "lib", "lib/modules", home):
        archive.folder(folder)
    archive.console()
    archive.file("bin/busybox", busybox)
    for applet in APPLETS.split(","):
        archive.link(f"bin/{applet}", "busybox")
    archive.file("init", init)
    dependencies, aliases = tables(modules)
    archive.file(f"{home}/modules.dep", dependencies.encode(), 0o644)
    archive.file(f"{home}/modules.alias", aliases.encode(), 0o644)
    archive.file(f"{home}/modules.symbols", b"", 0o644)
    for name, elf in sorted(modules.items()):
        archive.file(f"{home}/{name}.ko", elf, 0o644)
    return gzip.compress(archive.bytes(), compresslevel=6, mtime=0)


def busybox(root: Path) -> bytes:
    """The static busybox of a root file system."""
    return (root / "usr/bin/busybox").read_bytes()
