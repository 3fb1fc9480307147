"""Files that are never half written, and their digests."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from winlab import locks
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.events import Progress

BLOCK = 1 << 20
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}  # the descriptors that these names stand for
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a disk without space, or of a limit for files


def write_atomic(
    path: Path,
    content: str | bytes,
    *,
    mode: int | None = None,
    durable: bool = False,
    keep_owner: bool = False,
) -> None:
    """Replace a file by rename: readers see the old content or the new, never a part. A link is replaced, too.

    :param content: text is written as UTF-8.
    :param mode: the file's permissions, set before anything is written; None: the default for new files, by the umask.
    :param durable: flush the content to the disk before the rename, so that a power cut leaves no empty file.
    :param keep_owner: root gives the new file to the old one's owner and group (``sudo -E``).
    :raises OSError: it can't be written; the old file stays, and nothing else is left behind.
    """
    fresh = _beside(path)
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            if keep_owner and os.geteuid() == 0 and path.exists():
                old = path.stat()
                os.fchown(handle, old.st_uid, old.st_gid)
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(handle)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def write_named(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write to a path that the user gave: a file whole or not at all, never through a link; a stream as it is.

    A file of the user's own keeps its permissions.

    :param private: only its owner may read it, even if an earlier file was open to others.
    :raises UsageError: it is a device, pipe or socket; nothing was written.
    :raises OSError: it can't be written; an earlier file stays.
    """
    check_named(path)
    raw = content.encode() if isinstance(content, str) else content
    if (descriptor := _stream(path)) is not None:
        sys.stdout.flush()  # what was printed before comes first
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(raw)
        return
    mode = 0o600 if private else None
    with suppress(FileNotFoundError):
        about = path.lstat()
        if not private and stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
            mode = stat.S_IMODE(about.st_mode)
    write_atomic(path, raw, mode=mode)


def check_named(path: Path, *, stream: bool = True) -> None:
    """Check that a path that the user gave can be written to. Every output that a user names goes through here.

    What is written replaces what is there. A device, such as /dev/null, would then be gone for everyone on this host.

    :param stream: whether the command can write to a stream; otherwise it needs a file.
    :raises UsageError: it is a device, pipe or socket, also at the end of a link; or a stream, which can't be used.
    """
    cure = "Name a regular file, or '-' for the standard output." if stream else "Name a regular file."
    if is_stream(path):
        if not stream:
            why = "It is a stream, and this command writes only to files."
            raise UsageError(f"'{path}' is not a regular file; nothing was written.", why=why, cure=cure)
        return
    try:
        kind = path.stat().st_mode
    except OSError:
        return  # nothing is there, or writing says why it can't be
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        why = "It is a device, a pipe or a socket."
        raise UsageError(f"'{path}' is not a regular file; nothing was written.", why=why, cure=cure)


def is_stream(path: Path) -> bool:
    """Whether a path names an open stream of this process: ``-``, /dev/stdout, /dev/stderr, or one below /dev/fd."""
    return _stream(path) is not None


def is_stdout(path: Path) -> bool:
    """Whether a path names the standard output."""
    return _stream(path) == 1


def open_named(path: Path) -> TextIO:
    """A path that the user gave, open for lines that readers see at once; a file is emptied, a stream is used as it is.

    :raises UsageError: it is a device, pipe or socket.
    :raises OSError: it can't be written, or is a link.
    """
    check_named(path)
    if (descriptor := _stream(path)) is not None:
        return os.fdopen(os.dup(descriptor), "w", buffering=1)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "w", buffering=1)


def _stream(path: Path) -> int | None:
    """The descriptor of the stream that a path names; None if it names none."""
    if str(path) == "-":
        return 1
    folder, name = os.path.realpath(path.parent), path.name
    if folder == f"/proc/{os.getpid()}/fd" and re.fullmatch("[0-9]{1,6}", name):  # where the link /dev/fd leads
        return int(name)
    return STREAMS.get(f"{folder}/{name}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a large file that then replaces *path* by a rename; nothing is left if that fails.

    It is in a folder that only its owner can enter, under a name that can't be guessed. *path* may be in a folder that
    others can write to: beside it, a link could wait. What killed processes left there goes (:func:`sweep`).

    :raises UsageError: *path* is a stream, device, pipe or socket.
    :raises OSError: the folder can't be made.
    """
    check_named(path, stream=False)
    sweep(path)
    with ExitStack() as held:
        folder = _beside_in_use(path, held)
        try:
            fresh = folder / path.name
            yield fresh
            fresh.replace(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove what processes that were killed in :func:`replacing` left beside *path*; what is being written stays.

    No more than the one file: in a folder that others can write to, they could give such a name to another folder.
    """
    name = re.compile(re.escape(_hidden(path)) + "[0-9a-z_]{8}")  # as tempfile makes them
    with suppress(OSError):
        for folder in path.parent.iterdir():
            if name.fullmatch(folder.name) and _is_own_folder(folder):
                with suppress(OSError), locks.folder(folder) as mine:
                    if mine:
                        (folder / path.name).unlink(missing_ok=True)
                        folder.rmdir()


def _beside_in_use(path: Path, held: ExitStack) -> Path:
    """A new folder beside *path* that :func:`sweep` leaves alone as long as this process lives."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_hidden(path), dir=path.parent))
        try:
            mine = held.enter_context(locks.folder(folder))
        except FileNotFoundError:
            continue  # another process took it for a leftover
        except OSError:
            return folder  # a file system without locks, on which no one can sweep
        if mine and folder.exists():
            return folder


def _hidden(path: Path) -> str:
    return f".{path.name[:100]}."


def _is_own_folder(path: Path) -> bool:
    about = path.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()


def make_private(folder: Path) -> None:
    """Make a folder, and its parents, for their owner alone: users' files and keys are in it.

    One of an earlier winlab is closed to others; its parents are left as they are, because they may be anyone's.

    :raises OSError: it can't be made.
    """
    make_parents(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.stat()
    if about.st_uid == os.geteuid() and about.st_mode & 0o077:
        folder.chmod(0o700)


def make_parents(path: Path) -> None:
    """Make the folders above a path that are missing, for their owner alone, whatever the umask.

    :raises OSError: one can't be made.
    """
    for one in reversed([one for one in path.parents if not one.exists()]):
        one.mkdir(mode=0o700, exist_ok=True)


def replace_text(path: Path, text: str, mode: int = 0o644, *, durable: bool = False) -> bool:
    """Give a file this text and mode, and make its folder; returns whether anything changed.

    :param durable: as for :func:`write_atomic`.
    :raises OSError: it can't be read or written.
    """
    if path.exists() and path.read_bytes() == text.encode() and path.stat().st_mode & 0o777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    write_atomic(path, text, mode=mode, durable=durable)
    return True


def replace_link(link: Path, target: Path) -> None:
    """Make a symbolic link, or point it elsewhere; the link exists at all times.

    :raises OSError: it can't be made.
    """
    fresh = _beside(link)
    fresh.symlink_to(target)
    try:
        fresh.replace(link)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file's or folder's content to the disk: after a power cut, a rename must not survive without it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_no_file(path: Path) -> bool:
    """Whether there is something else than a regular file: a pipe is waited for, and a device may have no end.

    False where nothing can be looked at: opening it says why.
    """
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def sha256(path: Path, progress: Progress | None = None) -> str:
    """The SHA-256 of a file of any size, in hexadecimal digits.

    :raises UsageError: it can't be read.
    """
    made, have = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while block := file.read(BLOCK):
                made.update(block)
                have += len(block)
                if progress is not None:
                    progress.say(f"reading {path.name}", have / max(size, 1))
    except OSError as error:
        raise UsageError(f"'{path}' can't be read.", why=str(error)) from error
    return made.hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
