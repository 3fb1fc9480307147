"""The artifacts' part of the cache: what was fetched or made once is kept, under a key derived from its inputs.

::

    <cache>/artifacts/              settings.cache_dir(); belongs to one user
    ├── files/<key>/                a finished artifact; appears all at once, by a rename
    │   ├── kubelet.exe             read-only
    │   └── manifest.json           artifact, origin, digest, size, when it was made and how long that took
    ├── downloads/                  unfinished downloads, which the next try resumes
    ├── tools/                      what building needs and the machine lacks (Go)
    ├── staging/                    work folders; swept when their processes have ended, however they ended
    └── locks/<key>.lock            held while an artifact is fetched or made

A source calls ``lookup``; if that finds nothing, ``locked`` and ``lookup`` again; then it fetches or makes the artifact
in a ``workspace`` and calls ``keep``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from winlab import files, locks, settings
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.errors import AccessError, HostError
from winlab.events import Progress

_KINDS: dict[str, type[Program | ContainerImage | Manifest]] = {
    "program": Program,
    "image": ContainerImage,
    "manifest": Manifest,
}


@dataclass(frozen=True)
class Entry:
    """One artifact in the cache: its key, what it is, when it was made (UTC) and how many seconds that took."""

    key: str
    obtained: Obtained
    made: str
    seconds: float


def key(inputs: Mapping[str, object]) -> str:
    """The 64 hex digits that identify *inputs*: plain JSON values that decide the artifact's bytes."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def lookup(key: str) -> Obtained | None:
    """The artifact with that key; None if it is not cached or its file is incomplete."""
    entry = _read(_folder("files") / key)
    return entry.obtained if entry else None


def keep(
    key: str, artifact: Artifact, file: Path, origin: str, *, move: bool = False, seconds: float = 0.0
) -> Obtained:
    """Put *file* into the cache as *artifact*; the first one with this key wins.

    :param origin: where it came from, for users: a URL, a bundle's path, ``built from k8s.io/kubernetes v1.36.3``.
    :param move: move the file; otherwise it is copied.
    :param seconds: how long fetching or making took.
    :raises HostError: there is no space.
    :raises AccessError: the cache can't be written, or *file* not read.
    """
    with workspace() as work:
        target = work / "finished" / artifact.file
        try:
            target.parent.mkdir()
            if move:
                shutil.move(file, target)
            else:
                shutil.copyfile(file, target)
            manifest = _manifest(artifact, target, origin, seconds)
            (target.parent / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            target.chmod(0o555 if isinstance(artifact, Program) else 0o444)
            # After a power failure the rename must not exist without the data.
            for path in (target, target.parent / "manifest.json", target.parent):
                files.sync(path)
            return _publish(target.parent, _folder("files") / key)
        except OSError as error:
            raise _unwritable(error, target) from error


def entries() -> list[Entry]:
    """All complete artifacts in the cache, sorted by what they are and age (oldest first)."""
    found = [entry for folder in _folder("files").iterdir() if (entry := _read(folder))]
    return sorted(found, key=lambda entry: (entry.obtained.artifact.file, str(entry.obtained.artifact), entry.made))


def prune(keep: set[str]) -> int:
    """Remove all artifacts whose keys are not in *keep*, and all leftovers. Returns the freed space in bytes.

    What another winlab is currently fetching or making is left alone.
    """
    freed = _sweep()
    for path in [*_folder("files").iterdir(), *_folder("downloads").iterdir()]:
        name = path.name.partition(".")[0]
        if path.parent.name == "files" and name in keep:
            continue
        with locks.attempt(_lock(name)) as mine:
            if mine:
                freed += _remove(path)
    if not any(_folder("staging").iterdir()):  # no build is running
        freed += sum(_remove(path) for path in tools().iterdir())
    return freed


@contextmanager
def locked(key: str, progress: Progress, what: str) -> Iterator[None]:
    """Hold the lock of *key*, so that two winlabs don't fetch or make *what* at once; see :func:`winlab.locks.held`."""
    with locks.held(_lock(key), progress, f"at {what}"):
        yield


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder for work, on the cache's file system; gone afterwards, and swept later if this process is killed."""
    with ExitStack() as held:
        with locks.briefly(_lock("staging")):  # a folder that is not locked yet must not be mistaken for a leftover
            folder = Path(tempfile.mkdtemp(dir=_folder("staging")))
            held.enter_context(locks.folder(folder))
        try:
            _sweep()
            yield folder
        finally:
            _remove(folder)


def part(key: str, name: str) -> Path:
    """Where an unfinished download of that key is kept between tries and runs."""
    return _folder("downloads") / f"{key}.{name}.part"


def tools() -> Path:
    """The folder of what building needs and the machine lacks."""
    return _folder("tools")


def _manifest(artifact: Artifact, file: Path, origin: str, seconds: float) -> dict[str, object]:
    kind = next(name for name, kind in _KINDS.items() if isinstance(artifact, kind))
    return {
        "artifact": {"kind": kind, **asdict(artifact)},
        "file": file.name,
        "origin": origin,
        "sha256": files.sha256(file),
        "size": file.stat().st_size,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
    }


def _publish(folder: Path, final: Path) -> Obtained:
    """Move the finished *folder* to its place."""
    while True:
        try:
            folder.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if entry := _read(final):  # another winlab was first
                return entry.obtained
            _remove(final)  # incomplete
            continue
        files.sync(final.parent)
        entry = _read(final)
        assert entry is not None
        return entry.obtained


def _read(folder: Path) -> Entry | None:
    """The artifact in *folder*, if manifest and file agree."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        words = dict(manifest["artifact"])
        artifact = _KINDS[words.pop("kind")](**words)
        path = folder / str(manifest["file"])
        if path.stat().st_size != manifest["size"]:
            return None
        obtained = Obtained(artifact, path, str(manifest["sha256"]), int(manifest["size"]), str(manifest["origin"]))
        return Entry(folder.name, obtained, str(manifest["made"]), float(manifest["seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _folder(name: str) -> Path:
    """A folder of the store, created if missing.

    :raises AccessError: it can't be created.
    """
    folder = settings.cache_dir() / "artifacts" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(error, folder) from error
    return folder


def _unwritable(error: OSError, place: Path) -> HostError | AccessError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostError(
            f"There is no space left for '{place.name}' in the cache '{settings.cache_dir()}'.",
            cure="Free some space, or move the cache with WINLAB_CACHE.",
            causes=[error],
        )
    return AccessError(
        f"The cache '{settings.cache_dir()}' can't be used.",
        why=str(error),
        cure="Give yourself that folder, or name another with WINLAB_CACHE.",
        causes=[error],
    )


def _lock(name: str) -> Path:
    return _folder("locks") / f"{name}.lock"


def _sweep() -> int:
    """Remove the work of processes that have ended. Returns the freed bytes."""
    freed = 0
    with locks.briefly(_lock("staging")):
        for folder in _folder("staging").iterdir():
            # missing: its owner has just finished; not ours: its owner is at work
            with suppress(FileNotFoundError), locks.folder(folder) as mine:
                if mine:
                    freed += _remove(folder)
    return freed


def _remove(path: Path) -> int:
    """Remove a file or folder, even a read-only one (as Go's module cache). Returns the bytes that it took on disk."""
    if not path.is_dir():
        freed = path.stat().st_blocks * 512 if path.exists() else 0
        path.unlink(missing_ok=True)
        return freed
    freed = 0
    for folder, _, names in os.walk(path):
        Path(folder).chmod(0o700)
        for name in names:
            with suppress(FileNotFoundError):
                freed += (Path(folder) / name).lstat().st_blocks * 512
    # A program whose winlab was killed may still be writing there; the next sweep removes what is left.
    shutil.rmtree(path, ignore_errors=True)
    return freed
