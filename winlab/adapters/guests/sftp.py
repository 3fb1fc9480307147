"""A guest's files by sftp, over the same verified ssh connection as its commands."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paramiko

from winlab import stopping
from winlab.adapters.guests import file_system
from winlab.adapters.guests.file_system import BLOCK, PLAIN, Entry
from winlab.adapters.guests.ssh import SshGuest
from winlab.adapters.guests.ssh_command import SILENCE
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, NotFoundError, UnreachableError, UsageError

CHUNK = 1 << 15  # bytes of one request: what every server takes
AHEAD = 8 * BLOCK  # bytes that are requested before the first of them has come
MOST_MESSAGE = 1 << 20  # bytes of a message: OpenSSH's have 256 KiB at most
DRIVE = re.compile(r"/?([A-Za-z]):(/.*)?")
# Where distributions have OpenSSH's server; sudo, because sshd starts it as the user
AS_ROOT = (
    "for at in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh; do"
    " [ -x $at/sftp-server ] && exec sudo -n $at/sftp-server; done; exit 127"
)


class _Client(paramiko.SFTPClient):
    """paramiko's client with a limit for messages, and without a traceback if the connection is lost."""

    def open(self, filename: str | bytes, mode: str = "r", bufsize: int = -1) -> paramiko.SFTPFile:
        """The thread that requests blocks says nothing if it fails: what reads them fails, too."""
        file = super().open(filename, mode, bufsize)
        inner: Any = file  # its types name only what is public
        request = inner._prefetch_thread

        def request_quietly(*args: Any) -> None:
            with suppress(paramiko.SSHException, OSError, EOFError):
                request(*args)

        inner._prefetch_thread = request_quietly
        return file

    def _read_all(self, n: int) -> bytes:
        """Without a limit it would take any size that the guest announces."""
        if n > MOST_MESSAGE:
            raise paramiko.SFTPError(f"the guest sends a message of {n:,} bytes")
        return bytes(super()._read_all(n))  # type: ignore[misc]


class SftpFiles:
    """See :class:`winlab.adapters.guests.file_system.FileSystem`.

    :param guest: whose files; the connection is closed with this object.
    :param root: use the rights of root, on Linux.
    """

    def __init__(self, guest: SshGuest, tag: Tag, *, root: bool = False) -> None:
        self._guest = guest
        self._tag = tag
        self._windows = tag.system.paths.separator != "/"
        self.name = tag.node
        self.has_modes = not self._windows
        try:
            with self._explained("sftp"):
                channel = guest.channel()
                channel.settimeout(SILENCE)
                if root:
                    channel.exec_command(AS_ROOT)
                else:
                    channel.invoke_subsystem("sftp")
                self._client = _Client(channel)
        except BaseException:
            guest.close()
            raise

    def absolute(self, path: str) -> str:
        """On Windows ``C:/k`` is ``/C:/k`` for sftp; what has no drive is in the user's profile.

        :raises UsageError: it is relative to the current folder of a drive.
        """
        if self._windows:
            path = path.replace("\\", "/")
            if (drive := DRIVE.fullmatch(path)) is not None:
                return f"/{drive[1].upper()}:{drive[2] or '/'}"
            if re.match(r"/?[A-Za-z]:", path):
                raise UsageError(
                    f"'{path}' is not a path of Windows that can be copied.", cure="Give 'C:/folder/file'."
                )
        if path.startswith("/"):
            return path
        with self._explained(path):
            home = self._client.normalize(".").rstrip("/")
        return f"{home}/{path}" if path not in ("", ".") else home or "/"

    def shown(self, path: str) -> str:
        """Without the slash before a drive."""
        return path[1:] if self._windows and DRIVE.fullmatch(path) else path

    def is_legal(self, name: str) -> bool:
        """See the interface."""
        return file_system.is_legal(name, self._tag.system)

    def look(self, path: str) -> Entry | None:
        """See the interface."""
        with self._explained(path):
            try:
                return _entry(path.rstrip("/").rpartition("/")[2], self._client.stat(path))
            except FileNotFoundError:
                return None

    def entries(self, folder: str) -> Iterator[Entry]:
        """See the interface."""
        with self._explained(folder):
            found = (_entry(one.filename, one) for one in self._client.listdir_iter(folder))
            yield from file_system.bounded((one for one in found if one.name not in (".", "..")), folder)

    def read(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """See the interface. Some MiB are requested at a time: paramiko keeps all that has come in memory."""
        with self._explained(path), self._client.open(path, "rb") as file:
            while size > 0:
                wanted = min(size, AHEAD)
                blocks = [(offset + at, min(CHUNK, wanted - at)) for at in range(0, wanted, CHUNK)]
                for (_, length), block in zip(blocks, file.readv(blocks), strict=True):
                    stopping.check()
                    yield block[:length]
                    if len(block) < length:
                        return
                offset, size = offset + wanted, size - wanted

    def write(self, path: str, offset: int, blocks: Iterable[bytes]) -> None:
        """See the interface."""
        with self._explained(path):
            if offset == 0:
                with suppress(FileNotFoundError):
                    self._client.remove(path)
            # x: it must be new, so that no link is followed, and is private before anything is written
            with self._client.open(path, "r+" if offset else "wx") as file:
                if not offset and not self._windows:
                    file.chmod(0o600)
                if offset:
                    file.truncate(offset)
                    file.seek(offset)
                file.set_pipelined(True)
                for block in blocks:
                    stopping.check()
                    file.write(block)

    def replace(self, path: str, target: str, mode: int | None) -> None:
        """See the interface. Windows' files get the access that their folder passes on."""
        with self._explained(target):
            if not self._windows:
                self._client.chmod(path, 0o644 if mode is None else mode & PLAIN)
            self._client.posix_rename(path, target)

    def make_folder(self, path: str) -> None:
        """See the interface."""
        found = self.look(path)
        if found is None:
            parent = path.rstrip("/").rpartition("/")[0]
            if parent not in ("", path):
                self.make_folder(parent)
            with self._explained(path):
                self._client.mkdir(path, 0o755)
        elif found.kind != "folder":
            raise GuestError(f"'{self.shown(path)}' on '{self.name}' is not a folder.")

    def remove(self, path: str) -> None:
        """See the interface."""
        with suppress(paramiko.SSHException, OSError, EOFError):
            self._client.remove(path)

    def close(self) -> None:
        """See the interface."""
        self._guest.close()

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Explain what paramiko raises.

        :raises UnreachableError: the connection was lost, or the server does not answer.
        :raises NotFoundError: there is no such file.
        :raises GuestError: the server refuses, or its answer can't be read.
        """
        try:
            yield
        except (paramiko.SSHException, paramiko.SFTPError, OSError, EOFError, ValueError) as error:
            why = str(error) or type(error).__name__
            if isinstance(error, (TimeoutError, EOFError)) or not self._guest.is_connected():
                raise UnreachableError(
                    f"The ssh connection to '{self.name}' was lost.",
                    why=why,
                    cure="See 'winlab status'; then run the same command again: it resumes.",
                ) from error
            shown = self.shown(path)
            number = error.errno if isinstance(error, OSError) else None
            if number == errno.ENOENT:
                raise NotFoundError(f"There is no '{shown}' on '{self.name}'.") from error
            cure = ""
            if number == errno.EACCES and not self._windows:
                cure = "With --sudo, winlab uses the rights of root there."
            raise GuestError(f"'{self.name}' refuses '{shown}'.", why=why, cure=cure) from error


def _entry(name: str, about: paramiko.SFTPAttributes) -> Entry:
    mode = about.st_mode or 0
    kind = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
    size = (about.st_size or 0) if kind == "file" else 0
    return Entry(name, kind, size, stat.S_IMODE(mode), about.st_mtime or 0)  # type: ignore[arg-type]
