"""Files from Debian packages for images that winlab builds: unpacked without installing, on any distribution.

mmdebstrap fetches the packages with all dependencies and unpacks them (mmdebstrap(1), variant "extract"). Only
programs and libraries are used.
"""

from __future__ import annotations

import fnmatch
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from winlab import run
from winlab.events import Progress
from winlab.supply.artifacts.oci.write import LayerFile
from winlab.supply.images.apt import VARIABLE, debian_mirror

SUITE = "trixie"  # that of the Linux guests; its nft matches their kernel
MERGED = ("bin", "sbin", "lib", "lib64")  # links into usr, which the package base-files would bring
# Character sets that these programs don't use, and files that only builds and shells need
UNWANTED = ("*/gconv/*", "*/audit/*", "*/perl*", "*/systemd/*", "*/locale/*", "*/bash-completion/*", "*/valgrind/*")


def fetch(packages: tuple[str, ...], work: Path, progress: Progress) -> list[LayerFile]:
    """The programs and libraries of *packages* and of all their dependencies.

    :param work: a folder for the unpacked packages.
    :raises CommandError: the archive can't be reached, or has no such packages.
    :raises HostError: mmdebstrap is not installed.
    """
    mirror = debian_mirror()
    progress.say(f"fetching {', '.join(packages)} ({SUITE}, {mirror})")
    tar = work / "packages.tar"
    command = [
        "setpriv",
        "--pdeathsig=TERM",
        "mmdebstrap",
        "--variant=extract",
        # Nothing of what is unpacked is run, so neither root nor fake root is needed; root itself uses another mode.
        *([] if os.geteuid() == 0 else ["--mode=chrootless"]),
        "--architectures=amd64",
        "--format=tar",
        f"--include={','.join(packages)}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        '--aptopt=APT::Install-Recommends "false"',
        SUITE,
        str(tar),
        f"deb {mirror} {SUITE} main",
    ]
    run.stream(
        command,
        lambda _line: None,
        env={"TMPDIR": str(work)},  # removed with the work folder, however this ends
        cure=f"Is {mirror} reachable ({VARIABLE} names another), and is debian-archive-keyring installed?",
    )
    with tarfile.open(tar) as archive:
        return list(pick(archive))


def pick(archive: tarfile.TarFile) -> Iterator[LayerFile]:
    """The programs and libraries in *archive*, a root file system; folders that Debian merged into usr are links."""
    for name in MERGED:
        yield LayerFile(f"/{name}", link=f"usr/{name}")
    for member in archive:
        path = PurePosixPath(member.name.lstrip("./"))
        if path.parts[:1] and path.parts[0] in MERGED:
            path = "usr" / path
        name = str(path)
        if path.parts[0:1] != ("usr",) or path.parts[1:2] not in [(folder,) for folder in MERGED]:
            continue
        if any(fnmatch.fnmatch(f"/{name}", pattern) for pattern in UNWANTED):
            continue
        if member.issym():
            yield LayerFile(f"/{name}", link=member.linkname)
        elif member.isfile() or member.islnk():
            file = archive.extractfile(member)
            assert file is not None
            yield LayerFile(f"/{name}", file.read(), member.mode & 0o755)
