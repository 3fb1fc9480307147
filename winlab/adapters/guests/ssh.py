"""Guests by ssh. Only the host key that winlab made for the node is accepted."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress

import paramiko

from winlab import stopping
from winlab.adapters.guests.answering import Answering, bounded
from winlab.adapters.guests.base import Input, Sink, discard, patient
from winlab.adapters.guests.ssh_command import KEEPALIVE, SILENCE
from winlab.adapters.guests.systems import command_line, ways
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder

PORT = 22
CHUNK = 1 << 15
BLOCK = 1 << 20  # bytes of input that a node takes within SILENCE
LOOK = 0.02  # seconds between two checks for output
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # otherwise it prints tracebacks of refused connections


class SshGuest:
    """A guest that is reached by ssh."""

    def __init__(self, tag: Tag, folder: LabFolder, timeout: float) -> None:
        self._tag = tag
        self._client = paramiko.SSHClient()
        folder.credentials()  # raises a clear error if this account has none
        try:
            self._client.load_host_keys(str(folder.known_hosts))
        except OSError as error:
            raise GuestError(
                f"The host keys of the lab '{tag.lab}' can't be read, so '{tag.node}' can't be recognized.",
                why=str(error),
                cure=f"Run 'winlab repair --lab {tag.lab}'; it writes them again.",
            ) from error
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())

        def log_in() -> None:
            connection = dial(tag.floating, timeout)
            try:
                self._client.connect(
                    tag.full_name,  # whose host key it must have
                    PORT,
                    tag.user,
                    key_filename=str(folder.ssh_key),
                    allow_agent=False,
                    look_for_keys=False,
                    timeout=timeout,
                    banner_timeout=timeout,
                    auth_timeout=timeout,
                    sock=connection,
                )
                self._transport.set_keepalive(KEEPALIVE)
            except BaseException:
                # first the socket: paramiko's thread reads as long as the guest sends, and closing waits for it
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                self._client.close()
                connection.close()
                raise

        try:
            stopping.patiently(log_in)
        except paramiko.BadHostKeyException as error:
            raise GuestError(
                f"The ssh server at {tag.floating} is not '{tag.node}'.",
                why="Its host key is not the one that winlab gave to the node.",
                cure="Check that nothing else has that address. If in doubt, destroy and create the lab again.",
            ) from error
        except paramiko.AuthenticationException as error:
            raise GuestError(f"'{tag.node}' refuses the lab's ssh key.", why=str(error)) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise UnreachableError(
                f"'{tag.node}' does not answer ssh at {tag.floating}.",
                why=str(error) or type(error).__name__,
                cure=f"See 'winlab status' and 'winlab serial {tag.node}'.",
            ) from error

    def execute(
        self,
        command: Sequence[str],
        stdout: Sink = discard,
        stderr: Sink = discard,
        stdin: Input = b"",
        waiting: Callable[[], None] = patient,
    ) -> int:
        """See :class:`winlab.adapters.guests.base.Guest`."""
        patience = stopping.Patience()
        try:
            with closing(stopping.patiently(lambda: self._begin(command, stdin))) as channel:
                answering = Answering(self._transport, KEEPALIVE, SILENCE)
                while not _is_over(channel):
                    patience.check()
                    waiting()
                    answering.check()
                    if channel.recv_ready():
                        answering.heard()
                        stdout(channel.recv(CHUNK))
                    if channel.recv_stderr_ready():
                        answering.heard()
                        stderr(channel.recv_stderr(CHUNK))
                    if not channel.recv_ready() and not channel.recv_stderr_ready():
                        time.sleep(LOOK)
                code = channel.recv_exit_status()
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(str(error) or type(error).__name__) from error
        # a command that a signal ended has no exit code, either
        if code == -1 and (self._transport.saved_exception is not None or not self._transport.is_active()):
            raise self._lost("It ended before the command did.")
        return code

    def channel(self) -> paramiko.Channel:
        """A new channel of the connection, for something else than a command.

        :raises SSHException: the guest refuses it.
        :raises EOFError: the connection is closed.
        """
        return self._transport.open_session(timeout=SILENCE)

    def is_connected(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        transport = self._client.get_transport()
        # paramiko's thread first notes why it ends, then closes channels, and is_active() is false only after that
        return transport is not None and transport.is_active() and transport.saved_exception is None

    def _begin(self, command: Sequence[str], stdin: Input) -> paramiko.Channel:
        line = ways(self._tag.system).by_ssh(command_line(self._tag.system, command))
        channel = self._transport.open_session(timeout=SILENCE)
        with bounded(self._transport, SILENCE):
            channel.exec_command(line)
        rest: Iterable[bytes]
        if isinstance(stdin, bytes):
            with bounded(self._transport, SILENCE):
                channel.sendall(stdin[:BLOCK])
            if len(stdin) <= BLOCK:
                channel.shutdown_write()
                return channel
            rest = [stdin[BLOCK:]]
        else:
            rest = stdin
        # the rest meanwhile: the command may print as much before it takes more
        threading.Thread(target=_feed, args=(channel, rest), daemon=True).start()
        return channel

    @property
    def _transport(self) -> paramiko.Transport:
        """The connection.

        :raises EOFError: it was closed.
        """
        transport = self._client.get_transport()
        if transport is None:
            raise EOFError("the connection is closed")
        return transport

    def _lost(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"The ssh connection to '{self._tag.node}' was lost.",
            why=why,
            cure=f"See 'winlab status' and 'winlab serial {self._tag.node} --log'; then run the same command again.",
        )

    def close(self) -> None:
        """See :class:`winlab.adapters.guests.base.Guest`."""
        self._client.close()


def _feed(channel: paramiko.Channel, stdin: Iterable[bytes]) -> None:
    """Send the rest of a command's input, unless the command ends before that."""
    with suppress(paramiko.SSHException, OSError, EOFError):
        for piece in stdin:
            channel.sendall(piece)
        channel.shutdown_write()


def _is_over(channel: paramiko.Channel) -> bool:
    """Whether a command has ended and all of its output was read: some may come after its exit code."""
    # checked first: once it is true, nothing more comes
    ended = bool(channel.closed or (channel.exit_status_ready() and channel.eof_received))
    return ended and not channel.recv_ready() and not channel.recv_stderr_ready()


def dial(address: str, timeout: float) -> socket.socket:
    """A connection to a guest's ssh server that ends if the guest is gone.

    :raises OSError: nothing answers.
    """
    made = socket.create_connection((address, PORT), timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000)
    return made
