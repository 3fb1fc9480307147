"""A store of files that are slow to fetch or make: each is kept once, under a key derived from its inputs.

::

    <root>/
    ├── <finished>/<key>/           a finished entry; appears all at once, by a rename
    │   ├── <file>                  read-only
    │   └── manifest.json           file, digest, size, origin, when it was made, how long that took; and more
    ├── downloads/<key>.*           unfinished downloads, which the next try resumes
    ├── staging/                    work folders; swept when their processes have ended, however they ended
    └── locks/<key>.lock            held while an entry is fetched or made, so that two winlabs don't make the same one

A maker calls ``lookup``; if that finds nothing, ``locked`` and ``lookup`` again; then it makes the file in a folder of
its own in a ``workspace``, and calls ``publish``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from winlab import documents, files, locks, settings
from winlab.errors import AccessError, HostError, UsageError, WinlabError
from winlab.events import Progress
from winlab.run import run

_KEY = re.compile(r"[0-9A-Za-z_-]+")
_PATIENCE = 10.0  # seconds for the programs of a killed winlab to end
Item = TypeVar("Item")


def key(inputs: Mapping[str, object]) -> str:
    """The 64 hex digits that identify *inputs*: plain JSON values that decide an entry's bytes."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class Store(Generic[Item]):
    """The entries under one folder.

    :param root: the folder; it belongs to one user, who needs no rights beyond that.
    :param finished: the name of the folder of finished entries in it.
    :param read: makes an item of an entry's key, file and manifest. An entry that lacks what it needs (KeyError,
        TypeError, ValueError) counts as missing.
    """

    root: Path
    finished: str
    read: Callable[[str, Path, dict[str, Any]], Item]

    def lookup(self, key: str) -> Item | None:
        """The item with this key; None if it is missing, or manifest and file don't agree. Makes no folder."""
        return self._read(self.root / self.finished / _checked(key))

    def entries(self) -> list[Item]:
        """All items, sorted by age (oldest first). Makes no folder.

        :raises AccessError: they can't be read.
        """
        folders: list[Path] = []
        with self.writing(self.finished), suppress(FileNotFoundError):
            folders = sorted((self.root / self.finished).iterdir(), key=_age)
        return [item for folder in folders if (item := self._read(folder)) is not None]

    @contextmanager
    def locked(self, key: str, progress: Progress, doing: str) -> Iterator[None]:
        """Hold the lock of *key*; a process that waits for it says what the other is *doing* (:func:`locks.held`)."""
        with ExitStack() as held:
            with self.writing("a lock"):
                held.enter_context(locks.held(self._lock(_checked(key)), progress, doing))
            yield

    @contextmanager
    def workspace(self, key: str | None = None) -> Iterator[Path]:
        """A folder for work, on the store's file system; gone afterwards, and swept later if this process is killed.

        :param key: the folder's name; the caller holds the lock of that key. None: any name.
        :raises WinlabError: it can't be made.
        """
        with ExitStack() as held:
            # A folder that is not locked yet must not be mistaken for a leftover.
            with self.writing("a work folder"), locks.briefly(self._lock("staging")):
                staging = self.folder("staging")
                if key is None:
                    folder = Path(tempfile.mkdtemp(dir=staging))
                else:
                    folder = staging / _checked(key)
                    remove(folder)  # left by a killed process, because the caller holds the lock
                    folder.mkdir()
                held.enter_context(locks.folder(folder))
            try:
                self.sweep()
                yield folder
            finally:
                _discard(folder)

    def publish(
        self,
        key: str,
        file: Path,
        sha256: str,
        origin: str,
        seconds: float,
        about: dict[str, Any],
        mode: int = 0o444,
        *,
        instead: bool = False,
    ) -> Item:
        """Describe *file*, and move the folder that it lies in to its place; the first one with this key wins.

        :param file: alone in its folder, which is in a workspace.
        :param origin: where it came from, for users.
        :param seconds: how long fetching or making took.
        :param about: further content of the manifest, and what it says otherwise.
        :param mode: the file's permissions.
        :param instead: this one wins; the caller holds the lock of the key.
        :raises HostError: there is no space.
        :raises AccessError: the store can't be written.
        """
        final, folder = self._entry(key), file.parent
        with self.writing(file.name):
            manifest = {
                "file": file.name,
                "sha256": sha256,
                "size": file.stat().st_size,
                "origin": origin,
                "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds)),
                "seconds": round(seconds, 1),
                **about,
            }
            (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            file.chmod(mode)
            # After a power failure the rename must not exist without the data.
            for path in (file, folder / "manifest.json", folder):
                files.sync(path)
            if instead:
                remove(final)
            while True:
                try:
                    folder.rename(final)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    if (item := self._read(final)) is not None:  # another winlab was first
                        return item
                    remove(final)  # incomplete
                    continue
                files.sync(final.parent)
                item = self._read(final)
                assert item is not None
                return item

    def remove(self, key: str) -> int | None:
        """Remove the entry with this key; the freed bytes, or None if another winlab is making it."""
        return self._remove_idle(self._entry(key))

    def prune(self, keep: set[str]) -> int:
        """Remove all entries whose keys are not in *keep*, and all leftovers; the freed bytes.

        What another winlab is fetching or making is left alone.
        """
        freed = self.sweep()
        unwanted = [path for path in self.folder(self.finished).iterdir() if path.name not in keep]
        for path in [*unwanted, *self.folder("downloads").iterdir()]:
            freed += self._remove_idle(path) or 0
        return freed

    def sweep(self) -> int:
        """Remove the work of processes that have ended; the freed bytes. What can't be removed yet stays."""
        freed = 0
        with self.writing("the work folders"), locks.briefly(self._lock("staging")):
            for folder in self.folder("staging").iterdir():
                # missing: its owner has just finished; not ours: its owner is at work
                with suppress(OSError), locks.folder(folder) as mine:
                    if not mine:
                        continue
                    # An older winlab holds the key's lock alone while it works in a folder with the key as its name.
                    with locks.attempt(self._lock(folder.name)) as idle:
                        freed += _discard(folder) if idle else 0
        return freed

    def unfinished(self, key: str, name: str) -> Path:
        """Where the download of the file *name* for this key is kept between tries and runs."""
        return self.folder("downloads") / f"{_checked(key)}.{name}.part"

    def folder(self, name: str) -> Path:
        """A folder of the store, created if missing.

        :raises AccessError: it can't be created.
        """
        folder = self.root / name
        with self.writing(name):
            files.make_private(folder)
        return folder

    @staticmethod
    @contextmanager
    def writing(what: str) -> Iterator[None]:
        """Explain an :class:`OSError` at writing *what* into the cache.

        :raises HostError: there is no space.
        :raises AccessError: any other.
        """
        try:
            yield
        except OSError as error:
            cache = settings.cache_dir()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise HostError(
                    f"There is no space left for '{what}' in the cache '{cache}'.",
                    cure="Free some space, or move the cache with WINLAB_CACHE.",
                    causes=[error],
                ) from error
            raise AccessError(
                f"The cache '{cache}' can't be used.",
                why=str(error),
                cure="Give yourself that folder, or name another with WINLAB_CACHE.",
                causes=[error],
            ) from error

    def _entry(self, key: str) -> Path:
        return self.folder(self.finished) / _checked(key)

    def _lock(self, name: str) -> Path:
        return self.folder("locks") / f"{name}.lock"

    def _read(self, folder: Path) -> Item | None:
        try:
            manifest = documents.from_json((folder / "manifest.json").read_text(encoding="utf-8"))
            file = folder / str(manifest["file"])
            return self.read(folder.name, file, manifest) if file.stat().st_size == manifest["size"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _remove_idle(self, path: Path) -> int | None:
        """Remove an entry or a download, unless another winlab is at its key."""
        with self.writing(path.name), locks.attempt(self._lock(path.name.partition(".")[0])) as mine:
            return remove(path) if mine else None


def remove(path: Path) -> int:
    """Remove a file or folder, even with read-only folders in it (as Go's module cache); the bytes it took on disk.

    :raises OSError: it can't be removed.
    :raises WinlabError: something is mounted in it, and can't be unmounted.
    """
    if path.is_symlink() or not path.is_dir():
        freed = path.lstat().st_blocks * 512 if os.path.lexists(path) else 0
        path.unlink(missing_ok=True)
        return freed
    _unmount(path)
    freed = 0
    for folder, _, names in os.walk(path):
        with suppress(OSError):  # if it matters, rmtree says so
            Path(folder).chmod(0o700)
        for name in names:
            with suppress(FileNotFoundError):
                freed += (Path(folder) / name).lstat().st_blocks * 512
    limit = time.monotonic() + _PATIENCE
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError as error:
            # A program whose winlab was killed may still be writing or cleaning up there.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or time.monotonic() > limit:
                raise
            time.sleep(0.2)
    return freed


def mounted_under(folder: Path, table: str) -> list[str]:
    """The mount points under *folder* in *table* (proc(5), /proc/self/mounts), innermost first."""
    base = f"{folder.resolve()}/"
    points = [line.split(" ")[1] for line in table.splitlines()]
    # Blanks and the like are written as octal numbers there.
    clear = [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point) for point in points]
    return [point for point in reversed(clear) if point.startswith(base)]


def _unmount(folder: Path) -> None:
    """Unmount what a killed builder left mounted under *folder*: nothing may be removed through a mount.

    A builder that was asked to end unmounts itself; it gets a few seconds for that.
    """
    limit = time.monotonic() + _PATIENCE
    while mounts := mounted_under(folder, Path("/proc/self/mounts").read_text(encoding="utf-8")):
        if time.monotonic() > limit:
            for mount in mounts:
                run(["umount", mount])
        time.sleep(0.2)


def _discard(folder: Path) -> int:
    """As :func:`remove`; what can't be removed now is left to the next sweep."""
    try:
        return remove(folder)
    except (OSError, WinlabError):
        return 0


def _age(folder: Path) -> tuple[str, float]:
    """When an item was made, for sorting: its manifest says it; a copied or touched folder has another time."""
    try:
        made = documents.from_json((folder / "manifest.json").read_text(encoding="utf-8")).get("made")
        return str(made), folder.stat().st_mtime
    except (OSError, ValueError, AttributeError):  # removed meanwhile, or damaged
        return "", 0.0


def _checked(key: str) -> str:
    """*key*, which names files of the store; it may come from a file that someone else made.

    :raises UsageError: it could lead elsewhere.
    """
    if not _KEY.fullmatch(key):
        raise UsageError(f"'{key}' is not a key of the cache.")
    return key
