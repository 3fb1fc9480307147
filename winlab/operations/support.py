"""One archive with everything about a lab that helps to find out what went wrong, for people who can't log in here.

All parts are collected at once, each as far as it goes: what can't be read, or does not answer in time, is listed in
the archive. Secrets are masked; then the archive is read again, and a part that still has one is taken out.
"""

from __future__ import annotations

import contextvars
import io
import json
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from winlab import files, settings, stopping
from winlab.adapters.vm.domains import Machine
from winlab.errors import AccessError, Failure, HostError, UsageError, WinlabError
from winlab.events import Listener, Note, Progress, Told
from winlab.masking import Masker
from winlab.operations import look, support_secrets, support_sources
from winlab.operations.support_sources import File, Source
from winlab.printable import printable
from winlab.site import Site
from winlab.version import __version__

LIMIT = 60.0  # seconds for collecting all parts
LIST_LIMIT = 8.0  # seconds in which libvirt has to list the machines
TOTAL = 64 << 20  # bytes of all parts
TOTAL_FAILED = 16 << 20  # the same while the user waits for the cause of a failure: masking a MiB takes half a second
LONGEST = 600  # characters of a reason
KEPT = 3  # archives of one lab
KEPT_IN_ALL = 20
STUMP_SECONDS = 3600  # after which an unfinished archive is one whose winlab was killed
STEM = re.compile(r"(?P<lab>.+)-\d{8}T\d{6}Z(-\d+)?\.tar\.gz")
README = """\
What winlab collected about the lab '{lab}' at {made}.

manifest.json lists every file, and everything that could not be collected, with the reason:
{missing}
Known secrets of the lab, and what looks like one, were replaced by [secret ...]: passwords, private keys, tokens,
product keys. Names, addresses, logs and screens are as they are: look through them before you publish the archive.
"""


@dataclass(frozen=True)
class Missing:
    """Something that could not be collected, and why."""

    what: str
    why: str


def collect(
    lab: str, site: Site, tell: Listener, *, to: Path | None = None, failed: BaseException | None = None
) -> Path:
    """Collect everything about a lab into an archive; returns its path. Nothing is changed, and no lock is needed.

    :param to: the file or stream to write; by default a file in the state folder, of which the last ones are kept.
    :param failed: what failed just before: it is added to the archive, and there is less time to collect.
    :raises UsageError: *to* can't be written.
    :raises AccessError: the state folder can't be written.
    :raises HostError: there is no space.
    """
    if to is not None:
        _check_place(to)
    progress = Told(tell, "support")
    end = time.monotonic() + (settings.support_seconds() if failed is not None else LIMIT)
    masker, missing = _masker(lab, site)
    parts = [_failure(failed)] if failed is not None else []
    gathered, lacking = _gather(_sources(lab, site, missing), end - time.monotonic(), progress)
    gathered, excess = _bounded(gathered, TOTAL if failed is None else TOTAL_FAILED)
    parts, missing = [*parts, *gathered], [*missing, *lacking, *excess]
    progress.say("taking out secrets")
    missing = [Missing(*(_short(text, masker) for text in (one.what, one.why))) for one in missing]
    parts = [File(_short(part.path, masker), _masked(part, masker), part.cut) for part in parts]
    path = _place(lab) if to is None else to if files.is_stream(to) else to.absolute()
    try:
        whole = [*_index(lab, parts, missing, masker), *parts]
        files.write_named(path, _pack(f"winlab-support-{lab}", whole), private=True)
    except OSError as error:
        raise _not_written(f"The archive can't be written to '{path}'.", to, error) from error
    for one in missing:
        tell(Note(lab=lab, text=f"not in the archive: {one.what}: {one.why}"))
    if to is None:
        _prune(lab, path)
    return path


def _check_place(to: Path) -> None:
    """Check that an archive can be written there, before anything is collected.

    :raises UsageError: it can't.
    """
    files.check_named(to)
    if files.is_stream(to):
        return
    try:
        why = "" if to.absolute().parent.is_dir() and not to.is_dir() else "It is a folder, or is in none."
    except OSError as error:  # an endless name, an inaccessible folder
        why = str(error)
    if why:
        raise UsageError(f"The archive can't be written to '{to}'.", why=why)


def folder() -> Path:
    """Where archives go. Not the lab's folder: `destroy` removes that, maybe before the archive was sent."""
    return settings.state_dir() / "support"


def _masker(lab: str, site: Site) -> tuple[Masker, list[Missing]]:
    """What masks all secrets of a lab and of the builders of its golden images, and which may be unknown."""
    secrets: dict[str, str] = {}
    missing: list[Missing] = []
    for name in (lab, *support_sources.builders(lab, site)):
        of_lab, problems = support_secrets.of(site.folder(name))
        secrets |= {(key if name == lab else f"{name} {key}"): value for key, value in of_lab.items()}
        missing += [Missing("some known secrets", problem) for problem in problems]
    return Masker(secrets), missing


def _sources(lab: str, site: Site, missing: list[Missing]) -> list[Source]:
    """Everything to collect; what is already known to be missing is added to the list."""
    made = support_sources.shared(site)
    for name in (lab, *support_sources.builders(lab, site)):
        within = "" if name == lab else f"builders/{name}/"
        made += support_sources.of_lab(name, site, within)
        listed, lacking = _machines(name, site, within)
        missing += lacking
        for machine in listed:
            made += support_sources.of_machine(machine, site, within)
            if machine.state != "running":
                why = f"The machine is {machine.state}."
                missing.append(Missing(f"{within}screen and logs in {machine.tag.node}", why))
    return made


def _machines(lab: str, site: Site, within: str) -> tuple[list[Machine], list[Missing]]:
    """A lab's machines, unless libvirt does not answer in time."""
    listed: list[Machine] = []

    def read() -> list[File]:
        listed.extend(look.machines(lab, site))
        return []

    _, missing = _gather([Source(f"{within}machines", read)], LIST_LIMIT, None)
    if not missing and not listed:
        missing = [Missing(f"{within}machines", f"The lab '{lab}' has none.")]
    return ([] if missing else listed), missing


def _gather(sources: Sequence[Source], seconds: float, progress: Progress | None) -> tuple[list[File], list[Missing]]:
    """Read all sources at once for so many seconds. Those that have not ended by then are left alone."""
    stop = threading.Event()
    kept: dict[str, list[File]] = {source.name: [] for source in sources}
    pending: dict[Future[None], Source] = {}
    for source in sources:
        future: Future[None] = Future()
        pending[future] = source
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(_read, source, kept[source.name], future, stop))
        thread.daemon = True  # libvirt may never answer
        thread.start()
    missing: list[Missing] = []
    try:
        end, count = time.monotonic() + seconds, len(pending)
        while pending and time.monotonic() < end:
            if progress is not None:
                progress.say(f"{count - len(pending)} of {count} parts", (count - len(pending)) / count)
            for future in wait(pending, timeout=0.5).done:
                source = pending.pop(future)
                if (error := future.exception()) is not None:
                    missing.append(Missing(source.name, _words(error)))
    finally:
        stop.set()
    made = [file for name in kept if name not in {one.name for one in pending.values()} for file in kept[name]]
    missing += [Missing(source.name, f"It did not answer within {seconds:.0f} s.") for source in pending.values()]
    return made, missing


def _words(error: BaseException) -> str:
    """An error in one line."""
    text = f"{error.what} {error.why}" if isinstance(error, WinlabError) else f"{type(error).__name__}: {error}"
    return printable(" ".join(text.split()))


def _read(source: Source, kept: list[File], future: Future[None], stop: threading.Event) -> None:
    try:
        with stopping.by(stop):
            kept.extend(source.read())
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


def _bounded(parts: Iterable[File], most: int) -> tuple[list[File], list[Missing]]:
    """The parts that fit into so many bytes together, the smallest ones first; and the rest."""
    taken: list[File] = []
    excess: list[Missing] = []
    total = 0
    for part in sorted(parts, key=lambda part: len(part.content)):
        total += len(part.content)
        if total > most:
            excess.append(Missing(part.path, "The archive would become too large."))
        else:
            taken.append(part)
    return sorted(taken, key=lambda part: part.path), excess


def _masked(part: File, masker: Masker) -> bytes:
    """A part without secrets. Pictures are as they are: what masks text would only damage them."""
    return part.content if part.path.endswith(support_sources.PICTURES) else masker.mask(part.content)


def _short(text: str, masker: Masker) -> str:
    """A text without secrets, cut afterwards: half a secret would not be recognized."""
    return masker.mask(text.encode(errors="replace")).decode(errors="replace")[:LONGEST]


def _failure(error: BaseException) -> File:
    rows = [asdict(one) for one in Failure.each(error)]
    return File("failure.json", (json.dumps(rows, indent=1) + "\n").encode())


def _index(lab: str, parts: list[File], missing: list[Missing], masker: Masker) -> list[File]:
    """The files that say what is in the archive."""
    made = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    lines = "".join(f"  {one.what}: {one.why}\n" for one in missing) or "  nothing\n"
    manifest = {
        "version": 1,
        "lab": lab,
        "winlab": __version__,
        "made": made,
        "files": [{"path": part.path, "bytes": len(part.content), "cut": part.cut} for part in parts],
        "missing": [asdict(one) for one in missing],
    }
    texts = {
        "README.txt": README.format(lab=lab, made=made, missing=printable(lines)),
        "manifest.json": json.dumps(manifest, indent=1) + "\n",
    }
    return [File(name, masker.mask(text.encode())) for name, text in texts.items()]


def _pack(top: str, parts: list[File]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for part in parts:
            row = tarfile.TarInfo(f"{top}/{part.path}")
            row.size, row.mode, row.mtime = len(part.content), 0o600, int(time.time())
            archive.addfile(row, io.BytesIO(part.content))
    return made.getvalue()


def _not_written(what: str, to: Path | None, error: OSError) -> WinlabError:
    cure = "Free some space, or name a file elsewhere with --to."
    if error.errno in files.FULL:
        return HostError(what, why=str(error), cure=cure, causes=[error])
    return (AccessError if to is None else UsageError)(what, why=str(error), causes=[error])


def _place(lab: str) -> Path:
    """The path of a new archive.

    :raises WinlabError: its folder can't be made.
    """
    stem = f"{lab}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _not_written(f"'{folder()}' can't be made.", None, error) from error
    names = (f"{stem}.tar.gz", *(f"{stem}-{number}.tar.gz" for number in range(2, 100)))
    return next(path for path in map(folder().joinpath, names) if not path.exists())


def _prune(lab: str, newest: Path) -> None:
    """Remove old archives of the lab, the oldest of all labs, and the remains of one whose winlab was killed."""
    with suppress(OSError):
        every = [(path, name["lab"]) for path in folder().iterdir() if (name := STEM.fullmatch(path.name))]
        every.sort(key=lambda one: one[0].stat().st_mtime)
        own = [path for path, of in every if of == lab]
        for path in [*own[:-KEPT], *(path for path, _ in every[:-KEPT_IN_ALL])]:
            if path != newest:
                path.unlink(missing_ok=True)
        for path in folder().glob(f".{lab}-*.tar.gz.*"):
            if time.time() - path.stat().st_mtime > STUMP_SECONDS:
                shutil.rmtree(path, ignore_errors=True)  # earlier versions made folders
                path.unlink(missing_ok=True)
