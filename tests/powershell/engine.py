"""The PowerShell engine that the tests run winlab's scripts with: the first of these that there is.

- the program that ``WINLAB_POWERSHELL`` names
- the engine beside the checkout, ../shared/tools/powershell: a real PowerShell whose cmdlets behave as those of
  Windows PowerShell 5.1, and which takes the fakes of this folder by ``WINLAB_PS_PRELUDE``
- a release of PowerShell 7, downloaded once into winlab's cache. It has the parser, and so reads every line; the
  fakes need the engine's own types of .NET Framework, and the cmdlets of 7 answer otherwise than 5.1's: what runs
  scripts is left out with it, and says so
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import socket
import subprocess  # noqa: TID251 - asks the engine what it is
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from winlab import settings
from winlab.design.catalog.recipes import Download
from winlab.errors import WinlabError
from winlab.events import Quiet
from winlab.supply.download import fetch

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
NAME = "winlab-ps-linux-x64"
# The digest is the same in conda-forge/powershell-feedstock (recipe/recipe.yaml, commit e072a71) and in
# periareon/rules_powershell (powershell/private/versions.bzl, commit d44e923)
RELEASE = "7.5.4"
PWSH = Download(
    url=f"https://github.com/PowerShell/PowerShell/releases/download/v{RELEASE}/powershell-{RELEASE}-linux-x64.tar.gz",
    sha256="1fd7983fe56ca9e6233f126925edb24bf6b6b33e356b69996d925c4db94e2fef",
)
PARSES_ONLY = "is a PowerShell without the doubles of Windows: it reads scripts, and does not run them here"


class MissingEngineError(Exception):
    """There is none; the message says why."""


@functools.cache
def locate(folder: Path) -> Path:
    """The engine's program.

    :param folder: that beside the checkout is unpacked there, if need be, and found there the next time.
    :raises MissingEngineError: there is none, and none can be downloaded.
    """
    if named := os.environ.get("WINLAB_POWERSHELL"):
        program = Path(named)
        assert os.access(program, os.X_OK), f"WINLAB_POWERSHELL is '{named}', which is no program"
        return program
    if SHARED.is_dir():
        return _unpacked(SHARED / "tools/powershell", folder)
    return _downloaded(settings.cache_dir() / "powershell")


@functools.cache
def runs_doubles(program: Path) -> bool:
    """Can it run the scripts on a fake Windows?"""
    words = [program, "-NoProfile", "-NonInteractive", "-Command", "[bool]('Winlab.Doubles.Machine' -as [type])"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "True"


def _unpacked(source: Path, folder: Path) -> Path:
    """The program, unpacked whole or not at all, from an archive with the right digest."""
    listed = dict(reversed(line.split()) for line in (source / "SHA256SUMS").read_text().splitlines() if line)
    digest = listed[f"{NAME}.tar.xz"]
    program = folder / digest[:16] / NAME / "winlab-ps"
    if not program.exists():
        archive = source / f"{NAME}.tar.xz"
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest, f"{archive} is not what SHA256SUMS says"
        _unpack(archive, folder / digest[:16])
    return program


def _downloaded(cache: Path) -> Path:
    """PowerShell 7's program, verified and kept."""
    folder = cache / str(PWSH.sha256)[:16]
    program = folder / "pwsh"
    if program.exists():
        return program
    why = f"WINLAB_POWERSHELL names none, none is beside the checkout, and PowerShell {RELEASE} can't be downloaded"
    try:
        # the download itself tries for minutes, which is too long to learn that there is no internet
        place = urlsplit(PWSH.url)
        socket.create_connection((place.hostname, place.port or 443), timeout=10).close()
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / PWSH.url.rpartition("/")[2]
        fetch(PWSH, archive, Quiet(), part=archive.with_suffix(".part"))
    except (OSError, WinlabError) as error:
        raise MissingEngineError(f"there is no PowerShell engine: {why}: {error}") from error
    _unpack(archive, folder)
    program.chmod(0o755)  # the archive's own mode is 644
    archive.unlink()
    return program


def _unpack(archive: Path, folder: Path) -> None:
    """Whole, or not at all."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(partial)  # another process of the same tests was first
