"""Builds Debian guest images from the distribution's packages: an archive is all they need, no root, no mounts.

mmdebstrap makes the root file system, :mod:`winlab.supply.images.guestdisk` puts it on a bootable disk. What is not a
package is in the data folder, for all to read and change. ``images/debian/root`` has files that are laid over the
guest's root before its packages are set up; ``images/debian/finish.sh`` is run when all are.

As root mmdebstrap works as it is. As another user it needs ``uidmap`` and unprivileged user namespaces, and the disk
needs ``fakeroot``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tarfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from winlab import data, run
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import UsageError
from winlab.events import Progress
from winlab.supply.download import check_space
from winlab.supply.images import guestdisk
from winlab.supply.images.apt import VARIABLE, debian_mirror, installed

SPACE = 2_000_000_000  # bytes that a build takes on the way

# What mmdebstrap(1) says on its way, and how far the whole build is then (measured shares of its time).
_STAGES = (
    ("running apt-get update", "reading the archive's lists", 0.02),
    ("downloading packages", "downloading packages", 0.08),
    ("extracting archives", "unpacking the base system", 0.20),
    ("installing essential", "setting up the base system", 0.30),
    ("installing remaining", "installing the other packages", 0.40),
    ("cleaning package lists", "packing the root file system", 0.85),
)


class Options(BaseModel):
    """The options of a recipe built here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str = Field(pattern=r"^[a-z]+$")
    size_gib: int = Field(ge=2, le=1024, description="size of the disk that the guest sees; it grows with its volume")
    packages: list[str] = Field(min_length=1)


def note(recipe: Recipe) -> str:  # noqa: ARG001 - the builder's interface
    """Nothing."""
    return ""


def fingerprint(recipe: Recipe) -> str:  # noqa: ARG001 - the recipe itself is part of the key already
    """A digest of the files laid over the guest's root and of the code that builds it; packages are not in it."""
    digest = hashlib.sha256()
    base = data.folder("images") / "debian"
    for path in sorted(path for path in base.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(base)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    for module in (__file__, guestdisk.__file__):
        digest.update(Path(module).read_bytes())
    return digest.hexdigest()


def build(request: BuildRequest) -> None:
    """Make the image, in a minute or two.

    :raises UsageError: the recipe's options are wrong.
    :raises HostError: a program is missing, or there is no space.
    :raises CommandError: mmdebstrap or another program failed; its last lines are shown.
    """
    try:
        options = Options.model_validate(request.options)
    except ValidationError as error:
        raise UsageError(
            f"The build options of image '{request.recipe.name}' can't be used.",
            why=str(error),
            cure="See docs/images.md.",
        ) from error
    check_space(request.workdir, SPACE)
    mirror = request.mirror or debian_mirror()
    base = data.folder("images") / "debian"
    overlay = request.workdir / "overlay.tar"
    pack(base / "root", overlay)
    finish = (base / "finish.sh").read_text(encoding="utf-8")
    tar = request.workdir / "root.tar"
    bootstrap(options, mirror, overlay, finish, tar, request.progress)
    request.packages.update(installed(tar))
    request.progress.say("making the disk", 0.92)
    guestdisk.make_disk(tar, request.output, options.size_gib, request.workdir)


def pack(folder: Path, archive: Path) -> None:
    """Pack the files under *folder* as root's own; scripts (``#!``) may be run, whatever mode they have here."""
    with tarfile.open(archive, "w") as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            info = tarfile.TarInfo(f"./{path.relative_to(folder)}")
            info.size = len(content)
            info.mode = 0o755 if content.startswith(b"#!") else 0o644
            info.uname = info.gname = "root"
            with path.open("rb") as file:
                tar.addfile(info, file)


def bootstrap(options: Options, mirror: str, overlay: Path, finish: str, tar: Path, progress: Progress) -> None:
    """Make *tar*, the root file system, of Debian's packages from *mirror*."""
    command = [
        # Whatever ends winlab, even kill -9, lets mmdebstrap clean up: it has things mounted when it is root.
        "setpriv",
        "--pdeathsig=TERM",
        "mmdebstrap",
        "--variant=minbase",
        "--architectures=amd64",
        "--format=tar",
        f"--include={','.join(options.packages)}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Acquire::Retries "3"',
        # As Debian's own slim images do: a guest for a few hours needs no manuals, and fewer files boot faster.
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        # Before the kernel comes: its initrd is made by the rules in the overlay.
        f"--essential-hook=tar-in {shlex.quote(str(overlay))} /",
        # The script itself, not its path: a user namespace may not be allowed to read where it lies.
        f"--customize-hook={finish}",
        options.suite,
        str(tar),
        f"deb {mirror} {options.suite} main",
    ]
    # Root's leftovers of a killed build lie in the work folder then, and go with it. In a user namespace that folder
    # may be out of reach.
    env = {"TMPDIR": str(tar.parent)} if os.geteuid() == 0 else {}

    def say(line: str) -> None:
        for mark, text, fraction in _STAGES:
            if line.startswith("I: ") and mark in line:
                progress.say(f"{text} ({options.suite}, {mirror})", fraction)

    progress.say(f"starting from {mirror}", 0.0)
    run.stream(
        command,
        say,
        env=env,
        cure=f"Is {mirror} reachable ({VARIABLE} names another), and is debian-archive-keyring installed?",
    )
