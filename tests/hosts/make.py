"""Makes hosts for a test, and removes them without leaving anything."""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - makes keys and mounts
import sys
import sysconfig
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hosts.host import Host
from hosts.lan import MANAGEMENT, NETWORKS, Switch
from winlab.events import Quiet
from winlab.host import packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    packages.Package("sshd", "openssh-server", "openssh-server"),
    packages.Package("sudo", "sudo", "sudo"),
    packages.Package("tini", "tini", "tini"),
    packages.Package("ethtool", "ethtool", "ethtool"),
    packages.Package("tcpdump", "tcpdump", "tcpdump"),
    packages.Package("ps", "procps", "procps-ng"),
    packages.Package("ping", "iputils-ping", "iputils"),
)
POLICY = Path("/usr/sbin/policy-rc.d")  # deb-systemd-invoke and invoke-rc.d ask it


def install() -> None:
    """Install what hosts need. No service starts by that on the machine that runs the tests."""
    with _nothing_starts():
        packages.install((*packages.RUN, *NEEDED), Quiet())


@contextmanager
def _nothing_starts() -> Iterator[None]:
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


class Hosts:
    """Hosts with these names, all on; a context that removes them.

    They share the machine's kernel, clock and /usr. Each has its own /etc, /var, /root, /home and /opt, its processes,
    and two network cards. ``eth0`` has its address on the management LAN. ``eth1`` gets one on the tunnels' LAN when it
    is in an OVS bridge (``Host.add_tunnel_bridge``). Each has the user ``ann``, who may use sudo. Root and ann
    log in to every host by ssh, with the same key. winlab is this checkout, in /opt/winlab.
    """

    def __init__(self, *names: str) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="winlab-hosts-"))
        try:
            # a file system on which overlays can be, also where the tests run in a container
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "winlab-hosts", self.base], check=True)
            self.switch = Switch()
        except BaseException:
            self._remove_base()
            raise
        try:
            places = {str(path): None for path in (ROOT, sys.prefix, sys.base_prefix)}
            binds = [path for path in places if not path.startswith("/usr")]
            self._write(names)
            self.all = [Host(name, 1 + i, self.base, binds, self.switch) for i, name in enumerate(names)]
            for host in self.all:
                host.on()
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """End all processes, and remove everything. May be called again."""
        for host in getattr(self, "all", []):
            host.off()
        self.switch.remove()
        self._remove_base()

    def left(self) -> list[str]:
        """Their processes, mounts and files on this machine; empty after ``remove``."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found = [line for line in mounts if str(self.base) in line]
        spaces = {self.switch.space.number, *(space.number for host in self.all for space in host.spaces)}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if {(process / "ns" / kind).stat().st_ino for kind in ("net", "pid")} & spaces:
                    found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
        return [*found, *([str(self.base)] if self.base.exists() else [])]

    def _write(self, names: tuple[str, ...]) -> None:
        """What all hosts' disks begin with: keys, names, and a virtual environment with this checkout."""
        for key in ("key", "host-key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(self.base / key)]
            subprocess.run(words, check=True)
        addresses = {name: f"{NETWORKS[MANAGEMENT]}.{1 + i}" for i, name in enumerate(names)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (self.base / "hosts").write_text("\n".join([*lines, ""]))
        public = (self.base / "host-key.pub").read_text().rpartition(" ")[0]
        (self.base / "known_hosts").write_text(f"{','.join([*addresses, *addresses.values()])} {public}\n")
        venv = self.base / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        modules = venv / f"lib/python{sysconfig.get_python_version()}/site-packages"
        (modules / "winlab.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")

    def _remove_base(self) -> None:
        subprocess.run(["umount", self.base], check=False, capture_output=True)
        shutil.rmtree(self.base)
