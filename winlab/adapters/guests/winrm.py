"""Windows guests by WinRM over HTTPS (port 5986), with NTLM. Only a certificate of the lab's own CA for the node's name
is accepted, regardless of its address.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import requests
from spnego.exceptions import SpnegoError
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from winrm.exceptions import (
    InvalidCredentialsError,
    WinRMError,
    WinRMOperationTimeoutError,
    WinRMTransportError,
    WSManFaultError,
)
from winrm.protocol import Protocol as _Protocol

from winlab import stopping
from winlab.adapters.guests.base import Input, Sink, discard, patient
from winlab.adapters.guests.systems import command_line
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder

T = TypeVar("T")
PORT = 5986
# The errors of a lost or refused connection: requests' and urllib3's, a time-out, NTLM's own
LOST = (
    requests.exceptions.RequestException,
    OSError,
    WinRMOperationTimeoutError,
    WinRMError,
    WinRMTransportError,
    SpnegoError,
)
BLOCK = 100_000  # bytes of input in one message: base64 makes it larger, and an envelope holds 500 KB
WAITING = 8  # pieces of input that are read before the command has taken them
MOST = 1 << 20  # bytes of an answer
PATIENCE = 3  # a whole request with its logins may take so many times as long as the node may be silent
OPERATION_SECONDS = 20  # how long the server may delay its answer to a request
OUTPUT_SECONDS = 3  # the same for output: short, because a command's output is requested repeatedly
NO_SHELL = 2150858843  # ERROR_WSMAN_INVALID_SELECTORS of wsmerror.h: Windows or WinRM has restarted
IDLE = "PT600S"  # an unused shell ends, with what runs in it: Windows' own two hours suit people
GRACE = 3.5  # seconds that a request still has when the work was asked to stop: a guest that is up answers in time


class Protocol(_Protocol):
    """pywinrm's protocol with one node, which is not trusted: it may be broken into, or another machine.

    The server needs a certificate for *name*, regardless of its address. No request goes to any other address: neither
    redirects nor the Administrator's password. An answer has limits on its size and on its time.
    """

    def __init__(self, *, name: str, **options: Any) -> None:
        super().__init__(**options)
        self._node = _Node(name)
        session = self.transport.build_session()
        session.adapters.clear()
        session.mount(options["endpoint"], self._node)
        session.headers["Accept-Encoding"] = "identity"

    def send_message(self, message: str) -> bytes:
        """What the node answers to a request.

        :raises ReadTimeout: the answer takes too long, even if something of it arrives again and again.
        """
        with self._node.within(PATIENCE * self.read_timeout_sec):
            return bytes(super().send_message(message))


class _Node(requests.adapters.HTTPAdapter):
    """Connections to a server that has a certificate for this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, assert_hostname=self._name)
        node = self

        class Connection(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                node._socket = self.sock

        class Pool(HTTPSConnectionPool):
            ConnectionCls = Connection

        self.poolmanager.pool_classes_by_scheme = {"https": Pool}

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        """The answer to one HTTP request; its body is read later, through :func:`_body`.

        :raises WinRMError: it is not one that WinRM gives.
        """
        response = super().send(*arguments, **options)
        if 300 <= response.status_code < 400:
            response.close()
            raise WinRMError("It redirects to another address, which winlab does not ask.")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise WinRMError("Its answer is compressed, which winlab did not ask for.")
        response.raw.stream = partial(_body, response.raw)
        return response

    def close(self) -> None:
        """End the connection at once: urllib3 keeps it until its own objects are collected."""
        super().close()
        self._cut()

    def _cut(self) -> None:
        if (connected := self._socket) is not None:
            with suppress(OSError):  # TLS is not to say goodbye: another thread may be reading
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cut the connection if the block takes longer.

        :raises ReadTimeout: it did.
        """
        ended, over = threading.Event(), threading.Event()

        def watch() -> None:
            if not ended.wait(seconds):
                over.set()
                self._cut()
                while not ended.wait(1):  # a connection that was being made had no socket yet
                    self._cut()

        threading.Thread(target=watch, daemon=True).start()
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
            if not over.is_set():
                raise
        finally:
            ended.set()
        if over.is_set():
            raise requests.exceptions.ReadTimeout(f"no complete answer within {seconds:.0f} s") from failure


def _body(raw: Any, *_arguments: object, **_options: object) -> Iterator[bytes]:
    """The body of an answer, in place of urllib3's own stream, which reads lines of any length.

    :raises WinRMError: it is too long.
    """
    have = 0
    while block := raw.read(BLOCK, decode_content=False):
        have += len(block)
        if have > MOST:
            raw.close()
            raise WinRMError(f"Its answer has more than {MOST:,} bytes.")
        yield block


class _Fed:
    """A command's input that comes while it runs, read by a thread: requests to WinRM come one after the other."""

    def __init__(self, stdin: Iterator[bytes]) -> None:
        self._pieces: queue.Queue[bytes] = queue.Queue(WAITING)
        threading.Thread(target=self._read, args=(stdin,), daemon=True).start()

    def _read(self, stdin: Iterator[bytes]) -> None:
        with suppress(OSError):
            for piece in stdin:
                for start in range(0, len(piece), BLOCK):
                    self._pieces.put(piece[start : start + BLOCK])
        self._pieces.put(b"")

    def come(self) -> Iterator[bytes]:
        """What has come since the last call; an empty piece is the end."""
        for _ in range(WAITING):  # then the command's output has its turn
            try:
                yield self._pieces.get_nowait()
            except queue.Empty:
                return


class WinRmGuest:
    """A Windows guest that is reached by WinRM. Each command gets its own shell."""

    def __init__(self, tag: Tag, folder: LabFolder, timeout: float) -> None:
        self._tag = tag
        self._protocol = Protocol(
            name=tag.full_name,
            endpoint=f"https://{tag.floating}:{PORT}/wsman",
            transport="ntlm",
            username=tag.user,
            password=folder.credentials().administrator_password,
            server_cert_validation="validate",
            ca_trust_path=str(folder.ca),
            operation_timeout_sec=OPERATION_SECONDS,
            read_timeout_sec=max(int(timeout), OPERATION_SECONDS + 10),
            proxy=None,
        )
        self._abandoned = False  # whether a request never ended: the connection can't be used again
        open_shell = partial(self._protocol.open_shell, codepage=65001, idle_timeout=IDLE)
        try:
            self._shell = self._guarded(lambda: self._ask(lambda: str(open_shell())))
        except BaseException:
            self._protocol.transport.close_session()
            raise

    def execute(
        self,
        command: Sequence[str],
        stdout: Sink = discard,
        stderr: Sink = discard,
        stdin: Input = b"",
        waiting: Callable[[], None] = patient,
    ) -> int:
        """See :class:`winlab.adapters.guests.base.Guest`."""
        line = command_line(self._tag.system, command)

        def run() -> int:
            patience = stopping.Patience()
            # a program that gets the console's input in place of a pipe may never see its end
            start_command = partial(self._protocol.run_command, self._shell, line, console_mode_stdin=not stdin)
            command_id = self._ask(lambda: str(start_command()))
            try:
                fed = None
                if isinstance(stdin, bytes):
                    for start in range(0, len(stdin), BLOCK):
                        self._send(command_id, stdin[start : start + BLOCK], last=start + BLOCK >= len(stdin))
                else:
                    fed = _Fed(stdin)
                while True:
                    patience.check()
                    waiting()
                    for piece in fed.come() if fed is not None else ():
                        self._send(command_id, piece, last=not piece)
                    try:
                        out, err, code, ended = self._ask(partial(self._output, command_id))
                    except WinRMOperationTimeoutError:
                        continue  # the command printed nothing for a while, and still runs
                    stdout(out)
                    stderr(err)
                    if ended:
                        return int(code)
            finally:
                # the result is known: it does not matter if the guest is shutting down now
                with suppress(*LOST, stopping.Stopped):
                    self._ask(lambda: self._protocol.cleanup_command(self._shell, command_id))

        return self._guarded(run)

    def close(self) -> None:
        """See :class:`winlab.adapters.guests.base.Guest`. A guest that is down has closed its shells itself."""
        with suppress(*LOST, stopping.Stopped):
            self._ask(lambda: self._protocol.close_shell(self._shell))

    def _send(self, command_id: str, piece: bytes, *, last: bool) -> None:
        self._ask(partial(self._protocol.send_command_input, self._shell, command_id, piece, end=last))

    def _output(self, command_id: str) -> tuple[bytes, bytes, int, bool]:
        """What a command printed since the last request, its exit code, and whether it has ended.

        :raises WinRMOperationTimeoutError: nothing happened.
        """
        self._protocol.operation_timeout_sec = OUTPUT_SECONDS
        try:
            output: tuple[bytes, bytes, int, bool] = self._protocol.get_command_output_raw(self._shell, command_id)
            return output
        finally:
            self._protocol.operation_timeout_sec = OPERATION_SECONDS

    def _ask(self, request: Callable[[], T]) -> T:
        """What a request returns.

        :raises Stopped: the work was asked to stop, and the guest does not answer.
        """
        if self._abandoned:
            raise stopping.Stopped
        try:
            return stopping.patiently(request, GRACE)
        except stopping.Stopped:
            self._abandoned = True
            raise

    def _guarded(self, call: Callable[[], T]) -> T:
        node = self._tag.node
        try:
            return call()
        except InvalidCredentialsError as error:
            raise GuestError(f"'{node}' refuses the Administrator's password.", why=str(error)) from error
        except requests.exceptions.SSLError as error:
            if (
                "CERTIFICATE" not in str(error).upper()
            ):  # cut off in the handshake: the guest is starting or shutting down
                raise self._unreachable(error) from error
            raise GuestError(
                f"The WinRM server at {self._tag.floating} is not '{node}'.",
                why=str(error),
                cure="Check that nothing else has that address. If in doubt, destroy and create the lab again.",
            ) from error
        except (WinRMError, WinRMTransportError) as error:
            if isinstance(error, WSManFaultError) and error.wsman_fault_code == NO_SHELL:
                raise self._unreachable(error) from error
            raise GuestError(f"WinRM on '{node}' refuses the request.", why=str(error)) from error
        except LOST as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UnreachableError:
        node = self._tag.node
        return UnreachableError(
            f"'{node}' does not answer WinRM at {self._tag.floating}:{PORT}.",
            why=str(error),
            cure=f"See 'winlab status' and 'winlab serial {node} --log'.",
        )
