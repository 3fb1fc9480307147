"""Windows guests by WinRM over HTTPS (port 5986), with NTLM. Only a certificate of the lab's own CA is believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import requests
from winrm.exceptions import InvalidCredentialsError, WinRMError, WinRMTransportError
from winrm.protocol import Protocol

from winlab.errors import GuestError
from winlab.guest.base import Sink, command_line, discard
from winlab.net.tags import Tag
from winlab.state import LabState

T = TypeVar("T")
PORT = 5986
OPERATION_SECONDS = 20  # how long the server may hold a request for output


class WinRmGuest:
    """A Windows guest that is reached by WinRM. Each command gets a shell of its own."""

    def __init__(self, tag: Tag, state: LabState, timeout: float) -> None:
        self._tag = tag
        self._protocol = Protocol(
            endpoint=f"https://{tag.floating}:{PORT}/wsman",
            transport="ntlm",
            username=tag.user,
            password=state.credentials().administrator_password,
            server_cert_validation="validate",
            ca_trust_path=str(state.ca),
            operation_timeout_sec=OPERATION_SECONDS,
            read_timeout_sec=max(int(timeout), OPERATION_SECONDS + 10),
            proxy=None,
        )
        self._shell: str = self._guarded(lambda: str(self._protocol.open_shell(codepage=65001)))

    def execute(self, command: Sequence[str], stdout: Sink = discard, stderr: Sink = discard) -> int:
        """See :class:`winlab.guest.base.Guest`."""
        line = command_line("windows", command)

        def run() -> int:
            command_id = self._protocol.run_command(self._shell, line)
            try:
                out, err, code = self._protocol.get_command_output(self._shell, command_id)
            finally:
                self._protocol.cleanup_command(self._shell, command_id)
            stdout(out)
            stderr(err)
            return int(code)

        return self._guarded(run)

    def close(self) -> None:
        """See :class:`winlab.guest.base.Guest`."""
        self._guarded(lambda: self._protocol.close_shell(self._shell))

    def _guarded(self, call: Callable[[], T]) -> T:
        node = self._tag.node
        try:
            return call()
        except InvalidCredentialsError as error:
            raise GuestError(f"'{node}' refuses the Administrator's password.", why=str(error)) from error
        except requests.exceptions.SSLError as error:
            raise GuestError(
                f"The WinRM server at {self._tag.floating} is not '{node}'.",
                why=str(error),
                cure="See that nothing else has that address; 'winlab destroy' and create again if in doubt.",
            ) from error
        except (WinRMError, WinRMTransportError) as error:
            raise GuestError(f"WinRM on '{node}' refuses the request.", why=str(error)) from error
        except (requests.exceptions.RequestException, OSError) as error:
            raise GuestError(
                f"'{node}' does not answer WinRM at {self._tag.floating}:{PORT}.",
                why=str(error),
                cure=f"See 'winlab status' and 'winlab serial {node} --log'.",
            ) from error
