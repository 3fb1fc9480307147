"""The artifacts' part of the cache: what was fetched or made once is kept, under a key derived from its inputs.

::

    <cache>/artifacts/              settings.cache_dir(); a :class:`winlab.supply.store.Store`
    ├── files/<key>/                a finished artifact
    │   ├── kubelet.exe
    │   └── manifest.json           artifact, origin, digest, size, when it was made and how long that took
    ├── downloads/
    ├── tools/                      what building needs and the machine lacks (Go)
    ├── staging/
    └── locks/

A source calls ``lookup``; if that finds nothing, ``locked`` and ``lookup`` again; then it fetches or makes the artifact
in a ``workspace`` and calls ``keep``.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from winlab import files, settings
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.system import SYSTEMS
from winlab.events import Progress
from winlab.supply.store import Store, remove
from winlab.supply.store import key as key  # for sources

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


def lookup(key: str) -> Obtained | None:
    """The artifact with that key; None if it is not cached or its file is incomplete."""
    entry = _store().lookup(key)
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
    store = _store()
    with store.workspace() as work, store.writing(artifact.file):
        target = work / "finished" / artifact.file
        target.parent.mkdir()
        if move:
            shutil.move(file, target)
        else:
            shutil.copyfile(file, target)
        kind = next(name for name, kind in _KINDS.items() if isinstance(artifact, kind))
        about = {"artifact": {"kind": kind, **asdict(artifact)}}
        mode = 0o555 if isinstance(artifact, Program) else 0o444
        return store.publish(key, target, files.sha256(target), origin, seconds, about, mode).obtained


def is_whole(file: Path) -> bool:
    """Whether a file of the cache is what was obtained, byte by byte. Files that are not the cache's count as whole."""
    store = _store()
    if file.parent.parent != store.root / store.finished:
        return True
    entry = store.lookup(file.parent.name)
    return entry is not None and entry.obtained.path == file and files.sha256(file) == entry.obtained.sha256


def drop(file: Path) -> None:
    """Remove a damaged file of the cache, so that it is obtained again; not while another winlab is at it."""
    _store().remove(file.parent.name)


def entries() -> list[Entry]:
    """All complete artifacts in the cache, sorted by what they are and age (oldest first)."""
    return sorted(
        _store().entries(),
        key=lambda entry: (entry.obtained.artifact.file, str(entry.obtained.artifact), entry.made),
    )


def prune(keep: set[str]) -> int:
    """Remove all artifacts whose keys are not in *keep*, and all leftovers (:meth:`Store.prune`); tools, too, unless a
    build is running.
    """
    store = _store()
    freed = store.prune(keep)
    if not any(store.folder("staging").iterdir()):
        freed += sum(remove(path) for path in tools().iterdir())
    return freed


def locked(key: str, progress: Progress, what: str) -> AbstractContextManager[None]:
    """Hold the lock of *key*, so that two winlabs don't fetch or make *what* at once; see :func:`winlab.locks.held`."""
    return _store().locked(key, progress, f"at {what}")


def workspace() -> AbstractContextManager[Path]:
    """A folder for work, on the cache's file system; see :meth:`Store.workspace`."""
    return _store().workspace()


def part(key: str, name: str) -> Path:
    """Where an unfinished download of that key is kept between tries and runs."""
    return _store().unfinished(key, name)


def tools() -> Path:
    """The folder of what building needs and the machine lacks."""
    return _store().folder("tools")


def _store() -> Store[Entry]:
    return Store(settings.cache_dir() / "artifacts", "files", _read)


def _read(key: str, file: Path, manifest: dict[str, Any]) -> Entry:
    words = dict(manifest["artifact"])
    artifact = _KINDS[words.pop("kind")](**words)
    named = words.get("os", SYSTEMS[0].name)
    if not all(isinstance(word, str) for word in words.values()) or named not in [one.name for one in SYSTEMS]:
        raise ValueError("the manifest names no artifact")
    obtained = Obtained(artifact, file, str(manifest["sha256"]), int(manifest["size"]), str(manifest["origin"]))
    return Entry(key, obtained, str(manifest["made"]), float(manifest["seconds"]))
