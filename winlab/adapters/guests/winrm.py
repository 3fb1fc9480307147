"""Windows guests by WinRM over HTTPS (port 5986), with NTLM. Only a certificate of the lab's own CA for the node's name
is accepted, regardless of its address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import requests
from spnego.exceptions import SpnegoError
from winrm.exceptions import (
    InvalidCredentialsError,
    WinRMError,
    WinRMOperationTimeoutError,
    WinRMTransportError,
    WSManFaultError,
)
from winrm.protocol import Protocol as _Protocol

from winlab import stopping
from winlab.adapters.guests.base import Sink, discard, patient
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
OPERATION_SECONDS = 20  # how long the server may delay its answer to a request
OUTPUT_SECONDS = 3  # the same for output: short, because a command's output is requested repeatedly
NO_SHELL = 2150858843  # ERROR_WSMAN_INVALID_SELECTORS of wsmerror.h: Windows or WinRM has restarted
IDLE = "PT600S"  # an unused shell ends, with what runs in it: Windows' own two hours suit people
GRACE = 3.5  # seconds that a request still has when the work was asked to stop: a guest that is up answers in time


class Protocol(_Protocol):
    """pywinrm's protocol with a server that has a certificate for *name*, regardless of its address."""

    def __init__(self, *, name: str, **options: Any) -> None:
        super().__init__(**options)
        self.transport.build_session().mount("https://", _Named(name))


class _Named(requests.adapters.HTTPAdapter):
    """Connections to a server that has a certificate for this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, assert_hostname=self._name)


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
        self._shell = self._guarded(lambda: self._ask(lambda: str(open_shell())))

    def execute(
        self,
        command: Sequence[str],
        stdout: Sink = discard,
        stderr: Sink = discard,
        stdin: bytes = b"",
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
                for start in range(0, len(stdin), BLOCK):
                    block, last = stdin[start : start + BLOCK], start + BLOCK >= len(stdin)
                    send = partial(self._protocol.send_command_input, self._shell, command_id, block, end=last)
                    self._ask(send)
                while True:
                    patience.check()
                    waiting()
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
