"""The root file system of the stand-in: Debian packages and the guest's Python files, as a squashfs."""

from __future__ import annotations

import importlib.util
import io
import os
import shlex
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from winlab.errors import HostError, WinlabError
from winlab.run import run, stream
from winlab.supply.images.apt import installed
from winlab_standin.builder import initrd

SUITE = "trixie"
# What the guest's programs need; Wine runs the real Windows programs. A recipe can add more (options: packages).
PACKAGES = (
    "python3",
    "python3-cryptography",
    "openssh-server",
    "qemu-guest-agent",
    "wimtools",
    "ntfs-3g",
    "dosfstools",
    "fdisk",
    "curl",
    "openssl",
    "ca-certificates",
    "iproute2",
    "iputils-ping",
    "busybox-static",
    "netbase",
    "wine",
    "wine64",
    "libwine",
)
KERNEL_PACKAGE = "linux-image-amd64"
# Not useful in a system that is never upgraded; left out to keep the media small.
PRUNED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/i18n",
    "usr/share/info",
    "usr/share/perl5",
    "usr/share/bash-completion",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/systemd",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/bin/perl",
    "usr/lib/apt",
    "var/lib/apt",
    "var/cache",
    "var/lib/dpkg/info",
    "var/log",
    "usr/share/zoneinfo",
    "usr/share/icons",
    "usr/share/applications",
    "usr/share/X11",
    "usr/share/alsa",
    "usr/share/mime",
    "usr/share/fonts",
    "usr/share/gtk-doc",
    "usr/share/lintian",
    "usr/lib/python3.13/test",
    "usr/lib/python3.13/idlelib",
    "usr/lib/python3.13/ensurepip",
    "usr/lib/python3.13/pydoc_data",
    "etc/ssh/ssh_host_rsa_key",
    "etc/ssh/ssh_host_ecdsa_key",
    "etc/ssh/ssh_host_ed25519_key",
)
TOOLS = "Install the packages mmdebstrap, squashfs-tools, dpkg, binutils and debian-archive-keyring."
MODULES = "usr/lib/x86_64-linux-gnu/wine/x86_64-windows"  # Wine's own DLLs
_PACKAGE = Path(__file__).parent.parent
HOME = "usr/lib/standin"  # where the guest's files are, in the root

_ACCOUNTS = (
    "Administrator:x:0:0:Administrator:/c/Users/Administrator:/usr/lib/standin/cmd\n"
    "administrator:x:0:0:Administrator:/c/Users/Administrator:/usr/lib/standin/cmd\n"
)
_HOOK = """#!/bin/sh
set -eu
root=$1
cat >>"$root/etc/passwd" <<'END'
{passwd}END
mkdir -p "$root/c" "$root/media" "$root/run/sshd" "$root/var/cache"
ln -s /c "$root/C:"
ln -s /usr/lib/standin/cmd "$root/usr/bin/cmd.exe"
ln -sf /usr/lib/standin/shutdown "$root/usr/sbin/shutdown"
ln -sf /run/standin/resolv.conf "$root/etc/resolv.conf"
chroot "$root" python3 -m compileall -q -j 0 /{home} || true
cd "$root/var/cache"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
package=$(apt-cache depends {kernel} | sed -n 's/.*Depends: //p' | head -n 1)
apt-get -q -o APT::Sandbox::User=root download "$package"
mv linux-image-*.deb kernel.deb
wineroot() {{
    chroot "$root" env PYTHONPATH=/{home} PYTHONDONTWRITEBYTECODE=1 \\
        python3 -m winlab_standin.guest.wineroot "$1"
}}
wineroot prune
find "$root/{windows}" -type f -exec strip --strip-debug {{}} +
wineroot prefix
"""


@dataclass(frozen=True)
class Root:
    """What was made: the squashfs, and what the boot loader needs."""

    squashfs: Path
    kernel: bytes
    release: str
    modules: initrd.Modules
    busybox: bytes
    packages: dict[str, str]


def payload(target: Path, extra: dict[str, bytes]) -> None:
    """Gather the guest's files in *target*: its half of this package, pyspnego, boot programs, and *extra* files."""
    inside = target / _PACKAGE.name
    inside.mkdir(parents=True)
    shutil.copyfile(_PACKAGE / "__init__.py", inside / "__init__.py")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_PACKAGE / "guest", inside / "guest", ignore=ignore)
    spec = importlib.util.find_spec("spnego")
    if spec is None or not spec.submodule_search_locations:
        raise HostError("The Python package pyspnego is not installed.", cure="Install winlab-standin again.")
    shutil.copytree(Path(spec.submodule_search_locations[0]), target / "spnego", ignore=ignore)
    for program in ("init", "cmd", "dhcp", "shutdown"):
        shutil.copyfile(_PACKAGE / "boot" / f"{program}.sh", target / program)
        (target / program).chmod(0o755)
    for name, content in extra.items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes(content)


def _prefix(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def _kernel(package: Path) -> tuple[bytes, str, initrd.Modules]:
    """The kernel, its release and the chosen modules, from its Debian package."""
    unpacked = package.with_suffix(".tar")
    run(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" > "$2"', "sh", package, unpacked], cure=TOOLS)
    kernel, release, files, builtin = b"", "", {}, []
    with tarfile.open(unpacked) as archive:
        for member in archive:
            name = _prefix(member.name)
            if not member.isfile():
                continue
            if name.startswith("boot/vmlinuz-"):
                release = name.removeprefix("boot/vmlinuz-")
            elif not name.endswith("modules.builtin") and ".ko" not in name:
                continue
            file = archive.extractfile(member)
            content = file.read() if file else b""
            if name.startswith("boot/vmlinuz-"):
                kernel = content
            elif name.endswith("modules.builtin"):
                builtin = content.decode().split()
            else:
                files[name] = content
    unpacked.unlink()
    if not kernel:
        raise WinlabError("The kernel's package holds no kernel.", why=f"'{package.name}' was looked through.")
    return kernel, release, initrd.choose(files, builtin)


def build(mirror: str, packages: list[str], extra: dict[str, bytes], work: Path, say: Callable[[str], None]) -> Root:
    """Make the root file system in *work* from the Debian archive at *mirror*.

    *say* gets lines of progress. mmdebstrap decides how it works (as root, or in a user namespace).

    :raises CommandError: the archive can't be reached, or a package does not exist.
    """
    staged, tar, squashfs = work / "standin", work / "root.tar", work / "root.sqfs"
    payload(staged, extra)
    # The script itself, not its path: a user namespace may not be allowed to read that folder.
    hook = _HOOK.format(passwd=_ACCOUNTS, home=HOME, kernel=KERNEL_PACKAGE, windows=MODULES)
    arguments = ["--variant=minbase", f"--include={','.join([*PACKAGES, *packages])}"]
    arguments += ['--aptopt=Apt::Install-Recommends "false"']
    arguments += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "i18n")]
    arguments += ["--dpkgopt=force-unsafe-io"]  # if the machine fails, the root is made again anyway
    arguments += [f"--customize-hook=copy-in {shlex.quote(str(staged))} /usr/lib", f"--customize-hook={hook}"]
    arguments += [f"--customize-hook=copy-out /var/cache/kernel.deb {shlex.quote(str(work))}"]
    arguments += ['--customize-hook=rm "$1/var/cache/kernel.deb"']

    def tell(line: str) -> None:
        if line.startswith("I: "):
            say(f"packages: {line[3:]}")

    say("fetching and unpacking the packages")
    # Even if winlab is killed with kill -9, mmdebstrap gets SIGTERM, and cleans up. As root it has mounts; they are in
    # the work folder, which is removed anyway.
    command: list[str | Path] = ["setpriv", "--pdeathsig=TERM", "mmdebstrap", *arguments, SUITE, tar, mirror]
    stream(command, tell, env={"TMPDIR": str(work)} if os.geteuid() == 0 else {}, cure=TOOLS)
    say("compressing the root file system")
    with tarfile.open(tar) as archive:
        member = archive.extractfile("./usr/bin/busybox")
        assert member is not None
        busybox = member.read()
    packages_ = installed(tar)
    slim(tar, work / "slim.tar")
    tar.unlink()
    squeeze = 'exec mksquashfs - "$1" -tar -comp zstd -Xcompression-level 12 -b 256K -noappend -quiet <"$2"'
    run(["sh", "-c", squeeze, "sh", squashfs, work / "slim.tar"], cure=TOOLS)
    (work / "slim.tar").unlink()
    say("reading the kernel's package")
    kernel, release, modules = _kernel(work / "kernel.deb")
    (work / "kernel.deb").unlink()
    return Root(squashfs, kernel, release, modules, busybox, packages_)


def slim(source: Path, target: Path) -> None:
    """Copy a tar archive without what :data:`PRUNED` names."""
    folders = tuple(f"{name}/" for name in PRUNED)
    with tarfile.open(source) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        for member in old:
            name = _prefix(member.name)
            if name in PRUNED or name.startswith(folders) or name.startswith("dev/"):
                continue
            content = old.extractfile(member) if member.isfile() else None
            new.addfile(member, content or io.BytesIO())
