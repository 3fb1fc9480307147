"""The distribution's packages that winlab uses, by what they are for, and installing those that are missing."""

from __future__ import annotations

import fcntl
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from winlab.errors import HostError
from winlab.events import Progress
from winlab.run import find, run, stream

# dpkg's journal: it has files, named by numbers, while an installation is under way or was interrupted. apt-get refuses
# to continue then. Source: apt's debSystem::CheckUpdates
UNFINISHED = Path("/var/lib/dpkg/updates")
# A program holds the first lock while it installs packages, the second while it updates the package lists.
INSTALLING = Path("/var/lib/dpkg/lock-frontend")
UPDATING = Path("/var/lib/apt/lists/lock")
WAIT = 900  # seconds


@dataclass(frozen=True)
class Package:
    """A program or file that winlab needs, and the packages that contain it on Debian/Ubuntu and on Fedora."""

    needs: str  # a program, or the absolute path of a file
    debian: str
    fedora: str


# To run labs.
RUN = (
    Package("qemu-system-x86_64", "qemu-system-x86", "qemu-system-x86"),
    Package("qemu-img", "qemu-utils", "qemu-img"),
    Package("virsh", "libvirt-clients", "libvirt-client"),
    Package("libvirtd", "libvirt-daemon-system", "libvirt-daemon-kvm"),
    Package("ovs-vsctl", "openvswitch-switch", "openvswitch"),
    Package("ovn-northd", "ovn-central", "ovn-central"),
    Package("ovn-controller", "ovn-host", "ovn-host"),
    Package("ovn-nbctl", "ovn-common", "ovn"),
    Package("/usr/share/qemu/firmware", "ovmf", "edk2-ovmf"),
    Package("nft", "nftables", "nftables"),
    Package("ip", "iproute2", "iproute"),
    Package("ssh", "openssh-client", "openssh-clients"),
)

# To prepare Windows media.
MEDIA = (
    Package("wimlib-imagex", "wimtools", "wimlib-utils"),
    Package("mcopy", "mtools", "mtools"),
    Package("ntfscat", "ntfs-3g", "ntfsprogs"),  # reads Setup's logs from the disk of a stopped machine
)

# To build Linux images, the stand-in media, and Kubernetes.
BUILD = (
    Package("mmdebstrap", "mmdebstrap", "mmdebstrap"),
    # for a user who is not root
    Package("newuidmap", "uidmap", "shadow-utils"),
    Package("fakeroot", "fakeroot", "fakeroot"),
    Package("mke2fs", "e2fsprogs", "e2fsprogs"),
    Package("mksquashfs", "squashfs-tools", "squashfs-tools"),
    Package("grub-mkstandalone", "grub-common", "grub2-tools-minimal"),
    Package("/usr/lib/grub/x86_64-efi/linux.mod", "grub-efi-amd64-bin", "grub2-efi-x64-modules"),
    Package("/usr/lib/grub/i386-pc/linux.mod", "grub-pc-bin", "grub2-pc-modules"),
    Package("gcc", "gcc", "gcc"),
    Package("/usr/include/efi/efi.h", "gnu-efi", "gnu-efi-devel"),
    # runc is the one program that needs C
    Package("/usr/include/seccomp.h", "libseccomp-dev", "libseccomp-devel"),
    Package("pkg-config", "pkg-config", "pkgconf-pkg-config"),
    Package("objcopy", "binutils", "binutils"),
    Package("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring", "debian-keyring"),
)


def present(package: Package) -> bool:
    """Whether the program or file exists."""
    return Path(package.needs).exists() if package.needs.startswith("/") else find(package.needs) is not None


def missing(wanted: tuple[Package, ...]) -> list[Package]:
    """Those of *wanted* that are missing."""
    return [package for package in wanted if not present(package)]


def install_command(wanted: list[Package]) -> list[str]:
    """The command that installs *wanted* on this distribution; Debian's if the distribution is unknown."""
    if find("apt-get") is None and find("dnf") is not None:
        return ["dnf", "install", "-y", *dict.fromkeys(package.fedora for package in wanted)]
    names = dict.fromkeys(package.debian for package in wanted)
    return ["apt-get", "install", "-y", "--no-install-recommends", *names]


def cure(wanted: list[Package]) -> str:
    """The command for the user that installs *wanted*."""
    return f"Run 'sudo {shlex.join(install_command(wanted))}', or 'sudo winlab host setup --install'."


def install(wanted: tuple[Package, ...], progress: Progress) -> None:
    """Install those of *wanted* that are missing, from the host's own package sources.

    Other programs that install packages come first, such as Debian's unattended upgrades.

    :raises HostError: this is neither Debian or Ubuntu (apt-get) nor Fedora (dnf), or another program does not end.
    :raises CommandError: the package manager failed; the message has its last output.
    """
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    if not _interrupted() and not missing(wanted):
        return
    with _turn(progress):
        if _interrupted():
            progress.say("configuring packages whose installation was interrupted")
            run(["dpkg", "--configure", "-a"], env={**env, "DPKG_FRONTEND_LOCKED": "1"}, timeout=600)  # dpkg(1)
        absent = missing(wanted)
        if not absent:
            return
        words = install_command(absent)
        if find(words[0]) is None:
            raise HostError(
                "Packages can be installed with apt-get or dnf only, and this host has neither.",
                cure=f"Install the packages that contain these: {', '.join(package.needs for package in absent)}.",
            )
        if words[0] == "apt-get":
            progress.say("reading the package lists")
            run(["apt-get", "update"], env=env, timeout=600)
    progress.say(f"installing {' '.join(word for word in words[2:] if not word.startswith('-'))}")
    if words[0] == "apt-get":
        words[1:1] = ["-o", f"DPkg::Lock::Timeout={WAIT}"]
    stream(words, lambda line: progress.say(line) if line.startswith(("Unpacking", "Setting up")) else None, env=env)


def _interrupted() -> bool:
    """Whether an installation is under way or was interrupted; with the lock held, the latter."""
    return UNFINISHED.is_dir() and any(path.name.isdigit() for path in UNFINISHED.iterdir())


@contextmanager
def _turn(progress: Progress) -> Iterator[None]:
    """Hold dpkg's lock, once other installations and updates of the package lists have ended.

    :raises HostError: they did not end in time.
    """
    with ExitStack() as held:
        if INSTALLING.exists():
            _wait_for(held.enter_context(INSTALLING.open("rb+")), progress)
        if UPDATING.exists():
            with UPDATING.open("rb+") as file:  # not kept: "apt-get update" takes it
                _wait_for(file, progress)
        yield


def _wait_for(file: BinaryIO, progress: Progress) -> None:
    end = time.monotonic() + WAIT
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):  # either one: fcntl(2)
            if time.monotonic() > end:
                raise HostError(
                    f"Another program has been installing packages for {WAIT // 60} minutes.",
                    cure=f"Find it with 'sudo fuser -v {file.name}', and run the command again when it has ended.",
                ) from None
        progress.say("waiting for another program to install its packages")
        time.sleep(1)
