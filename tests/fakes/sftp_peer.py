"""A node's ssh server with sftp on a folder: paramiko's server, on a pair of sockets."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
import pytest

from winlab.adapters.guests import ssh
from winlab.design.plan import credentials, tags
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.lab_folder import LabFolder


class Handle(paramiko.SFTPHandle):
    """An open file. The connection is cut once the node has passed on ``peer.cut`` bytes."""

    def __init__(self, server: Sshd, path: Path, flags: int) -> None:
        super().__init__(flags)
        self._server = server
        self._peer = server.peer
        self._path = path
        self._file = os.open(path, flags, 0o644)

    def _count(self, offset: int, size: int) -> None:
        if not self._server.transport.is_active():
            return  # what was requested before it was cut
        self._peer.first = min(self._peer.first, offset)
        self._peer.moved += size
        if self._peer.cut is not None and self._peer.moved >= self._peer.cut:
            self._peer.cut = None
            self._peer.end()

    def read(self, offset: int, length: int) -> bytes:
        block = os.pread(self._file, length, offset)
        self._count(offset, len(block))
        return block

    def write(self, offset: int, data: bytes) -> int:
        os.pwrite(self._file, data, offset)
        self._count(offset, len(data))
        return paramiko.SFTP_OK

    def stat(self) -> paramiko.SFTPAttributes:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self._file))

    def chattr(self, attr: paramiko.SFTPAttributes) -> int:
        _change(self._path, attr)
        return paramiko.SFTP_OK

    def close(self) -> None:
        os.close(self._file)


def _change(path: Path, attr: paramiko.SFTPAttributes) -> int:
    """paramiko's own function would empty a file whose size is set."""
    if attr.st_size is not None:
        os.truncate(path, attr.st_size)
    if attr.st_mode is not None:
        path.chmod(attr.st_mode)
    return paramiko.SFTP_OK


def _answer(act: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*args: Any) -> Any:
        try:
            result = act(*args)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        return paramiko.SFTP_OK if result is None else result

    return answer


class Files(paramiko.SFTPServerInterface):
    """sftp's requests, below ``peer.root``."""

    def __init__(self, server: Sshd) -> None:
        super().__init__(server)
        self._server = server
        self._peer = server.peer

    def _real(self, path: str) -> Path:
        return self._peer.root / path.lstrip("/")

    def canonicalize(self, path: str) -> str:
        return self._peer.home if path in (".", "") else path

    @_answer
    def list_folder(self, path: str) -> Any:
        rows = [paramiko.SFTPAttributes.from_stat(one.lstat(), one.name) for one in self._real(path).iterdir()]
        for row in rows:
            row.filename = self._peer.names.get(row.filename, row.filename)
        return rows

    @_answer
    def stat(self, path: str) -> Any:
        return paramiko.SFTPAttributes.from_stat(self._real(path).stat())

    @_answer
    def lstat(self, path: str) -> Any:
        return paramiko.SFTPAttributes.from_stat(self._real(path).lstat())

    @_answer
    def open(self, path: str, flags: int, attr: paramiko.SFTPAttributes) -> Any:
        return Handle(self._server, self._real(path), flags)

    @_answer
    def remove(self, path: str) -> Any:
        self._real(path).unlink()

    @_answer
    def posix_rename(self, oldpath: str, newpath: str) -> Any:
        self._real(oldpath).replace(self._real(newpath))

    @_answer
    def mkdir(self, path: str, attr: paramiko.SFTPAttributes) -> Any:
        self._real(path).mkdir()

    @_answer
    def chattr(self, path: str, attr: paramiko.SFTPAttributes) -> Any:
        _change(self._real(path), attr)


class AnyLogin(paramiko.ServerInterface):
    """One connection to an ssh server that accepts every key; ``here`` is the client's end."""

    def __init__(self, host_key: paramiko.PKey) -> None:
        self.here, there = socket.socketpair()
        self.transport = paramiko.Transport(there)
        self.transport.add_server_key(host_key)
        self.transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
        self.transport.start_server(threading.Event(), self)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def answer(self, act: Callable[..., None], *args: Any) -> bool:
        """Grant a request for a command, and do this once the client was sent the grant."""
        send = self.transport._send_user_message

        def grant(message: paramiko.Message) -> None:
            send(message)
            if threading.current_thread() is self.transport:  # others may send meanwhile, for other channels
                self.transport._send_user_message = send  # type: ignore[method-assign]
                threading.Thread(target=act, args=args, daemon=True).start()

        self.transport._send_user_message = grant  # type: ignore[method-assign]
        return True


class Sshd(AnyLogin):
    """One connection. ``peer.play`` answers commands."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        super().__init__(peer.key)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.peer.commands.append(command.decode())
        if "sftp-server" in command.decode():  # with sudo
            threading.Thread(
                target=paramiko.SFTPServer(channel, "sftp", self, Files).start_subsystem,
                args=("sftp", self.transport, channel),
                daemon=True,
            ).start()
            return True
        return self.answer(self.peer.play, channel, command.decode())


class Peer:
    """A node.

    :param root: its files.
    """

    def __init__(self, root: Path, key: paramiko.PKey) -> None:
        self.root = root
        self.key = key
        self.home = "/home/winlab"
        self.names: dict[str, str] = {}  # names that it lists in place of others
        self.commands: list[str] = []
        self.play: Callable[[paramiko.Channel, str], None] = lambda channel, _line: channel.close()
        self.cut: int | None = None  # bytes of files after which it cuts the connection, once
        self.moved = 0
        self.first = sys.maxsize  # the lowest offset that was read or written
        self.open: list[Sshd] = []
        self.is_deaf = False

    def dial(self) -> socket.socket:
        if self.is_deaf:
            raise ConnectionRefusedError(111, "Connection refused")
        self.open.append(Sshd(self))
        return self.open[-1].here

    def end(self) -> None:
        for one in self.open:
            one.transport.close()

    def files(self) -> dict[str, bytes]:
        """All files, by path below the root."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


_made: dict[str, Credentials] = {}  # keys take a second


def _credentials(digest: str, plan: Plan) -> Credentials:
    if digest not in _made:
        _made[digest] = credentials.generate(plan)
    return _made[digest]


@contextmanager
def nodes(monkeypatch: pytest.MonkeyPatch, plan: Plan, folder: Path) -> Iterator[dict[str, Peer]]:
    """A peer for each node of a plan, which ssh reaches at the node's address."""
    lab = LabFolder(plan.lab)
    made = _credentials(plan.digest, plan)
    lab.keep_credentials(plan, made)
    peers: dict[str, Peer] = {}
    addresses: dict[str, Peer] = {}
    for node in plan.nodes:
        key = folder / f"{node.name}.key"
        key.write_text(made.nodes[node.name].host_key)
        root = folder / node.name
        root.mkdir()
        peers[node.name] = Peer(root, paramiko.Ed25519Key(filename=str(key)))
        home = "C:/Users/Administrator" if node.os == "windows" else "home/winlab"
        peers[node.name].home = f"/{home}"
        (root / home).mkdir(parents=True)
        addresses[tags.of(plan, node).floating] = peers[node.name]
    monkeypatch.setattr(ssh, "dial", lambda address, _timeout: addresses[address].dial())
    yield peers
    for peer in peers.values():
        peer.end()
