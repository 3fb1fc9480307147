"""Copy files and folders into a node, out of it, or from one node to another.

A file is written beside its target under a hidden name, and renamed when it is complete. That name has a digest of what
is copied: after an interruption, the same command finds it and resumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from types import TracebackType

from winlab import stopping
from winlab.adapters.guests import connect
from winlab.adapters.guests.base import Sink
from winlab.adapters.guests.file_system import Entry, FileSystem
from winlab.adapters.guests.here import LocalFiles
from winlab.errors import GuestError, NotFoundError, UnreachableError, UsageError
from winlab.events import Listener, Told
from winlab.operations import look
from winlab.operations.copied import Copied, Meter
from winlab.site import Site

HERE = ""  # the name of this host in a place
STREAM = "-"  # the path of the standard input or output
WILD = frozenset("*?[")
TAIL = 1 << 20  # bytes of an interrupted copy that are compared before it is resumed
UNKNOWN = 64 << 20  # bytes that a file may have whose size is 0, as those of /proc
DEEPEST = 100  # folders in each other
TRIES = 5  # connections that are lost without progress before the copy fails
PAUSE = 2.0  # seconds before a lost connection is made again


@dataclass(frozen=True)
class Place:
    """A path on a node, or on this host if *node* is empty."""

    node: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """``NODE:PATH``, or a path of this host: one without a colon, or with a slash before it."""
        head, colon, path = text.partition(":")
        return cls(head, path) if colon and head and "/" not in head else cls(HERE, text)


@dataclass(frozen=True)
class _Job:
    """A file or folder, and where it goes."""

    node: str
    path: str
    entry: Entry
    target: str


@dataclass
class _Work:
    jobs: list[_Job] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def copy(
    lab: str,
    sources: Sequence[Place],
    target: Place,
    site: Site,
    listener: Listener,
    *,
    root: bool = False,
    stdin: Iterable[bytes] = (),
    stdout: Sink | None = None,
) -> Copied:
    """Copy *sources* to *target*, or into it if it is a folder. Folders are copied with everything in them.

    :param root: use the rights of root on Linux nodes.
    :param stdin: the bytes of the source ``-``.
    :param stdout: takes the bytes if the target is ``-``.
    :raises UsageError: the places don't go together, or a file of this host can't be used.
    :raises NotFoundError: there is no such lab, node or file.
    :raises GuestError: a node does not run, can't be reached, or refuses.
    """
    _check(sources, target)
    with _Systems(lab, site, root=root) as systems:
        if Place(HERE, STREAM) in sources:
            return _from_stream(stdin, target, systems(target.node))
        work = _planned(sources, target, systems)
        meter = Meter(Told(listener, "cp"), sum(job.entry.size for job in work.jobs))
        copier = _Copier(systems, target.node, meter)
        for job in work.jobs:
            if target == Place(HERE, STREAM):
                assert stdout is not None
                _to_stream(job, systems(job.node), stdout)
            else:
                copier.copy(job)
    files = [job for job in work.jobs if job.entry.kind == "file"]
    return Copied(len(files), meter.total, tuple(work.skipped))


def _check(sources: Sequence[Place], target: Place) -> None:
    """Check that the places go together.

    :raises UsageError: they don't.
    """
    if not sources:
        raise UsageError("There is nothing to copy.", cure="Name a source, then the target.")
    for source in sources:
        if source.node == target.node:
            where = f"on '{target.node}'" if target.node else "on this host"
            cure = f"Run 'winlab exec {target.node} ...'." if target.node else "Write NODE:PATH for a file of a node."
            raise UsageError(f"'{source.path}' and '{target.path}' are both {where}.", cure=cure)
    if len(sources) > 1 and Place(HERE, STREAM) in sources:
        raise UsageError("The standard input can't be copied together with other files.")


class _Systems(AbstractContextManager["_Systems"]):
    """The file systems of a copy, by node; each is connected when it is first used."""

    def __init__(self, lab: str, site: Site, *, root: bool) -> None:
        self._lab = lab
        self._site = site
        self._root = root
        self._open: dict[str, FileSystem] = {}

    def __call__(self, node: str) -> FileSystem:
        if node not in self._open:
            self._open[node] = LocalFiles() if node == HERE else self._connect(node)
        return self._open[node]

    def _connect(self, node: str) -> FileSystem:
        with self._site.hypervisors() as hosts:
            machine = look.find_node(self._lab, node, hosts)
        look.require_running(machine)
        return connect.files(machine.tag, self._site.folder(self._lab), root=self._root)

    def drop(self) -> None:
        """Close all connections; they are made again when they are used."""
        with ExitStack() as closed:
            for one in self._open.values():
                closed.callback(one.close)
            self._open.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()


# -- what is to be copied


def _planned(sources: Sequence[Place], target: Place, systems: _Systems) -> _Work:
    """Everything that is to be copied. Nothing was changed yet, except that the target's folder was made.

    :raises WinlabError: a source can't be copied to the target.
    """
    found = [(source, path) for source in sources for path in _matches(systems(source.node), source.path)]
    work, to = _Work(), systems(target.node)
    if target == Place(HERE, STREAM):
        for source, path in found:
            work.jobs.append(_Job(source.node, path, _file(systems(source.node), path), STREAM))
        return work
    base = to.absolute(target.path)
    there = to.look(base)
    if there is not None and there.kind == "other":
        raise UsageError(f"'{to.shown(base)}' is not a regular file, and not a folder.", cure="Name another target.")
    into = there is not None and there.kind == "folder"
    if not into and (target.path.endswith("/") or (target.path.endswith("\\") and not to.has_modes)):
        to.make_folder(base)
        into = True
    if not into and len(found) > 1:
        cure = "Give a folder as the target; with '/' at its end it is made."
        raise UsageError(f"'{target.path}' is not a folder, and there are {len(found)} sources.", cure=cure)
    for source, path in found:
        system = systems(source.node)
        entry = system.look(path)
        if entry is None or entry.kind == "other":
            raise NotFoundError(f"There is no file or folder '{system.shown(path)}' on {_of(source.node)}.")
        name = path.rstrip("/").rpartition("/")[2]
        goal = f"{base.rstrip('/')}/{_legal(name, system, to)}" if into else base
        for job in _walk(system, _Job(source.node, path, entry, goal), to, work.skipped):
            work.jobs.append(job)
    return work


def _matches(system: FileSystem, path: str) -> list[str]:
    """The paths that a source names: itself, or those that match its wildcards. The shell has replaced those of here.

    :raises NotFoundError: there is none.
    """
    whole = system.absolute(path)
    if not WILD & set(path) or isinstance(system, LocalFiles) or system.look(whole) is not None:
        return [whole]
    if not (found := list(_expanded(system, whole))):
        raise NotFoundError(f"Nothing on '{system.name}' matches '{system.shown(whole)}'.")
    return found


def _expanded(system: FileSystem, path: str) -> Iterator[str]:
    head, _, pattern = path.rpartition("/")
    fold = str.lower if not system.has_modes else str  # Windows' names
    for folder in _expanded(system, head) if WILD & set(head) else [head]:
        names = [pattern]
        if WILD & set(pattern):
            names = sorted(one.name for one in system.entries(folder or "/") if system.is_legal(one.name))
            hidden = pattern.startswith(".")
            names = [
                name for name in names if fnmatchcase(fold(name), fold(pattern)) and hidden >= name.startswith(".")
            ]
        yield from (each for name in names if system.look(each := f"{folder}/{name}") is not None)


def _walk(system: FileSystem, job: _Job, to: FileSystem, skipped: list[str], depth: int = 0) -> Iterator[_Job]:
    if depth > DEEPEST:
        raise GuestError(f"'{system.shown(job.path)}' is in more than {DEEPEST} folders.")
    stopping.check()
    if job.entry.kind == "other":
        skipped.append(system.shown(job.path))
        return
    yield job
    if job.entry.kind == "folder":
        for entry in sorted(system.entries(job.path), key=lambda one: one.name):
            name = _legal(entry.name, system, to)
            inner = _Job(job.node, f"{job.path.rstrip('/')}/{name}", entry, f"{job.target.rstrip('/')}/{name}")
            yield from _walk(system, inner, to, skipped, depth + 1)


def _legal(name: str, system: FileSystem, to: FileSystem) -> str:
    """A file's name, which may be a guest's: it is checked, so that nothing is written outside of the target.

    :raises UsageError: the target can't have it.
    """
    if not to.is_legal(name):
        raise UsageError(
            f"A file called '{name}' on {_of(system.name)} can't be copied.",
            why=f"{_of(to.name).capitalize()} can't have a file of this name in a folder.",
            cure="Rename it, or copy the others one by one.",
        )
    return name


def _of(node: str) -> str:
    return f"'{node}'" if node not in (HERE, LocalFiles.name) else LocalFiles.name


def _file(system: FileSystem, path: str) -> Entry:
    entry = system.look(path)
    if entry is None or entry.kind != "file":
        raise NotFoundError(f"There is no file '{system.shown(path)}' on '{system.name}'.")
    return entry


# -- the copy itself


class _Copier:
    """Copies one file after the other, and connects again if a connection is lost."""

    def __init__(self, systems: _Systems, target: str, meter: Meter) -> None:
        self._systems = systems
        self._target = target
        self._meter = meter
        self._seen: dict[str, dict[str, Entry]] = {}  # what target folders have, as far as they were looked at

    def copy(self, job: _Job) -> None:
        """Copy a file, or make a folder.

        :raises WinlabError: that fails.
        """
        lost = 0
        while True:
            before = self._meter.done
            try:
                self._try(job)
                return
            except UnreachableError:
                lost = 1 if self._meter.done > before else lost + 1
                if lost >= TRIES:
                    raise
                self._systems.drop()
                self._seen.clear()
                self._meter.say("the connection was lost, trying again")
                stopping.sleep(PAUSE)

    def _try(self, job: _Job) -> None:
        source, target = self._systems(job.node), self._systems(self._target)
        if job.entry.kind == "folder":
            target.make_folder(job.target)
            return
        size, parts, part = job.entry.size, self._parts(source, job, target), _part(source, job)
        offset = _agreed(source, job, target, part, parts[part].size) if size and part in parts else 0
        self._meter.begin(source.shown(job.path), offset)
        target.write(part, offset, self._meter.counted(_read(source, job.path, offset, size)))
        target.replace(part, job.target, job.entry.mode if source.has_modes else None)
        self._meter.end(size)
        parts.pop(part, None)

    def _parts(self, source: FileSystem, job: _Job, target: FileSystem) -> dict[str, Entry]:
        """The interrupted copies in the target's folder, by path. Those of other contents for this file are removed."""
        folder, name = _split(job.target)
        if folder not in self._seen:
            try:
                entries = list(target.entries(folder or "/"))
            except UnreachableError:
                raise
            except (GuestError, NotFoundError, UsageError):
                entries = []  # writing says why
            hidden = re.compile(r"\..+\.[0-9a-f]{16}\.winlab")
            self._seen[folder] = {
                f"{folder}/{one.name}": one for one in entries if one.kind == "file" and hidden.fullmatch(one.name)
            }
        parts, own = self._seen[folder], _part(source, job)
        others = re.compile(re.escape(f"{folder}/{_hidden(name)}") + r"[0-9a-f]{16}\.winlab")
        for path in [path for path in parts if path != own and others.fullmatch(path)]:
            target.remove(path)
            del parts[path]
        return parts


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


def _hidden(name: str) -> str:
    return f".{name.encode()[:150].decode(errors='ignore')}."


def _part(source: FileSystem, job: _Job) -> str:
    """The path of a file that is not complete, by what it is a copy of."""
    folder, name = _split(job.target)
    made = sha256(repr((source.name, job.path, job.entry.size, job.entry.changed)).encode(errors="surrogateescape"))
    return f"{folder}/{_hidden(name)}{made.hexdigest()[:16]}.winlab"


def _agreed(source: FileSystem, job: _Job, target: FileSystem, part: str, have: int) -> int:
    """From where an interrupted copy resumes: its end, unless its last bytes are others, as after a power cut."""
    have = min(have, job.entry.size)
    tail = min(have, TAIL)
    same = b"".join(source.read(job.path, have - tail, tail)) == b"".join(target.read(part, have - tail, tail))
    return have if same else 0


def _read(source: FileSystem, path: str, offset: int, size: int) -> Iterator[bytes]:
    """A file from an offset to the size that it had when it was looked at.

    :raises GuestError: it is shorter now.
    """
    have = offset
    for block in source.read(path, offset, (size - offset) or UNKNOWN) if size != offset or not size else ():
        have += len(block)
        yield block
    if have < size or (not size and have >= UNKNOWN):
        raise GuestError(
            f"'{source.shown(path)}' on {_of(source.name)} has another size than when the copy began.",
            why=f"It had {size:,} bytes, and {have:,} could be read.",
            cure="Run the same command again.",
        )


def _to_stream(job: _Job, source: FileSystem, stdout: Sink) -> None:
    for block in _read(source, job.path, 0, job.entry.size):
        stdout(block)


def _from_stream(stdin: Iterable[bytes], target: Place, to: FileSystem) -> Copied:
    path = to.absolute(target.path)
    there = to.look(path)
    if target.path.endswith("/") or target.path == "" or (there is not None and there.kind == "folder"):
        raise UsageError(f"'{target.path}' is a folder.", cure="The standard input needs a file's name there.")
    folder, name = _split(path)
    part, size = f"{folder}/{_hidden(name)}{'0' * 16}.winlab", 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for block in stdin:
            size += len(block)
            yield block

    try:
        to.write(part, 0, counted())
        to.replace(part, path, None)
    except BaseException:
        to.remove(part)
        raise
    return Copied(1, size)
