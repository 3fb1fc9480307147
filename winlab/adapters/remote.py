"""Another host, by ssh: its address, commands there, and its sockets as sockets here.

ssh uses the user's own keys, agent, ``known_hosts`` and configuration. It never asks a question, accepts no new host
key, and forwards neither agent nor X server.
"""

from __future__ import annotations

import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from winlab import files, loopback, run, settings, stopping
from winlab.errors import HostError, UsageError

LIMIT = 20.0  # seconds for a command on another host
MOST = 1 << 20  # bytes that it may print
FORWARDED = 10.0  # seconds until a socket must be forwarded
POLL = 0.05  # seconds between two looks for it
# They win over the user's configuration: no question, no new host key, nothing of the user's for the other host.
CAUTIOUS = (
    "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oForwardAgent=no", "-oForwardX11=no",
    "-oPermitLocalCommand=no",
)  # fmt: skip
# A host without power is noticed after 5 s when ssh connects, and after 4 s later: libvirt's URIs have no such limits.
OPTIONS = (*CAUTIOUS, "-oConnectTimeout=5", "-oServerAliveInterval=2", "-oServerAliveCountMax=2")
FAILED = 255  # ssh's own exit code: it did not connect
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,45}")  # a name, or an address
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Remote:
    """Where ssh connects to. Without a user or a port, ssh's configuration decides."""

    host: str
    user: str = ""
    port: int | None = None

    @classmethod
    def of(cls, uri: str) -> Remote | None:
        """The host of a URI whose transport is ssh (``qemu+ssh://...``, ``ssh://...``); None if it has another one.

        :raises UsageError: ssh can't connect to what it names.
        """
        if uri.partition(":")[0].rpartition("+")[2] != "ssh":
            return None
        try:
            return cls._read(uri)
        except ValueError as error:
            cure = "Give 'qemu+ssh://user@host/system', for example."
            raise UsageError(f"'{uri}' does not name a host for ssh.", why=str(error), cure=cure) from error

    @classmethod
    def parse(cls, text: str) -> Remote:
        """The host of ``[USER@]HOST[:PORT]``, with or without ``ssh://``.

        :raises UsageError: it is something else.
        """
        try:
            return cls._read(f"ssh://{text.removeprefix('ssh://')}")
        except ValueError as error:
            cure = "Give a host such as 'ann@192.0.2.1' or 'ssh://ann@lab-1:2222'."
            raise UsageError(f"'{text}' is not the ssh address of a host.", why=str(error), cure=cure) from error

    @classmethod
    def _read(cls, url: str) -> Remote:
        """The host of a URL; ValueError says why ssh can't connect to it."""
        parts = urlsplit(url)
        host, user, port = parts.hostname or "", parts.username or "", parts.port
        legal = url.isprintable() and HOST.fullmatch(host) and (not user or USER.fullmatch(user))
        if not legal or parts.password is not None:
            raise ValueError("It needs the name or address of a host; a user and a port are optional.")
        return cls(host, user, port)

    def __str__(self) -> str:
        """As a person writes it for ssh."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def url(self, path: str | Path) -> str:
        """The URL of a socket on this host, as :func:`forwarded` takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"ssh://{f'{self.user}@' if self.user else ''}{host}{port}{path}"

    @property
    def trial(self) -> str:
        """A command by which a user tries ssh."""
        return f"ssh {'' if self.port is None else f'-p {self.port} '}{self} true"

    @property
    def cure(self) -> str:
        """What to do if ssh does not connect."""
        return f"Run '{self.trial}': it must work without a question. Confirm the host's key there once."

    def words(self, *options: str) -> list[str]:
        """The command line of ssh without the command; *options* win over :data:`OPTIONS`."""
        port = [] if self.port is None else ["-p", str(self.port)]
        user = ["-l", self.user] if self.user else []
        return ["ssh", *options, *OPTIONS, *port, *user, "--", self.host]

    def call(self, script: str, limit: float = LIMIT) -> str:
        """What a script of the shell prints there.

        :param limit: seconds for all of it.
        :raises HostError: ssh does not connect, or the script fails or prints too much.
        """
        try:
            words = [*self.words("-T"), f"sh -c {shlex.quote(script)}"]
            return run.watched(words, timeout=limit, most=MOST).stdout
        except run.CommandError as error:
            if error.result.returncode != FAILED:
                raise
            raise HostError(f"ssh can't connect to '{self}'.", why=error.why, cure=self.cure) from error


def program() -> Path:
    """A program that runs ssh with :data:`OPTIONS`, for libvirt: its URIs can name a program, and no options.

    :raises OSError: the folder of the user's state can't be written.
    """
    path = settings.state_dir() / "ssh"
    text = f'#!/bin/sh\nexec ssh {" ".join(OPTIONS)} "$@"\n'
    if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
        files.make_parents(path)
        files.write_atomic(path, text, mode=0o700)
    return path


@contextmanager
def forwarded(url: str) -> Iterator[Path]:
    """A socket of another host as a socket here, which only this user can use, for the length of a with-block.

    :param url: ``ssh://user@host:port/path``.
    :raises HostError: ssh does not connect, or may not forward.
    :raises UsageError: the URL names no host.
    """
    there = Remote.of(url)
    assert there is not None
    with TemporaryDirectory(prefix="winlab-", ignore_cleanup_errors=True) as folder:  # of mode 0700
        path = Path(folder) / "s"
        with _forwarding(there, f"{path}:{urlsplit(url).path}", path.exists):
            yield path


@contextmanager
def forwarded_port(there: Remote, port: int) -> Iterator[int]:
    """A TCP port of another host's loopback as a port of this one's, for the length of a with-block.

    :raises HostError: ssh does not connect, or may not forward.
    """
    here = free_port()
    with _forwarding(there, f"{loopback.ADDRESS}:{here}:{loopback.ADDRESS}:{port}", lambda: loopback.listens(here)):
        yield here


def free_port(port: int = 0) -> int:
    """A port of the loopback on which nothing listens.

    :param port: this one; 0: any.
    :raises OSError: something listens there, or this user may not.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as ssh: connections that ended don't matter
        probe.bind((loopback.ADDRESS, port))
        return int(probe.getsockname()[1])


@contextmanager
def _forwarding(there: Remote, what: str, is_ready: Callable[[], bool]) -> Iterator[None]:
    """ssh with ``-L``, once it is ready, for the length of a with-block."""
    words = there.words("-N", "-T", "-oExitOnForwardFailure=yes", "-oControlPath=none", f"-L{what}")
    with forwarding(words, is_ready, str(there), there.cure):
        yield


@contextmanager
def forwarding(
    words: Sequence[str | Path], is_ready: Callable[[], bool], name: str, cure: str
) -> Iterator[Callable[[], str | None]]:
    """A command line of ssh that forwards, once it is ready, for the length of a with-block.

    The with-block gets a function: None while ssh runs, then its errors.

    :param is_ready: whether the socket here is there.
    :param name: of the other side, for messages.
    :raises HostError: ssh does not connect, or may not forward.
    """
    with run.beside(words) as ended:
        patience, end = stopping.Patience(), time.monotonic() + FORWARDED
        while True:
            said = ended()
            if said is not None or time.monotonic() > end:
                raise HostError(f"ssh can't connect to '{name}'.", why=said or "It does not answer.", cure=cure)
            if is_ready():
                break
            patience.sleep(POLL)
        yield ended
