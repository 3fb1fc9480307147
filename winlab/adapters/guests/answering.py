"""Notices a frozen ssh server: its node's kernel still acknowledges packets, so the connection stays up forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import paramiko

QUESTION = "keepalive@openssh.com"  # OpenSSH answers each unknown request with a failure, which is an answer, too


class Answering:
    """Whether the server still answers while a command prints nothing.

    :param quiet: seconds without output after which it is asked.
    :param silence: seconds without output or an answer after which it counts as frozen.
    """

    def __init__(self, transport: paramiko.Transport, quiet: float, silence: float) -> None:
        self._transport = transport
        self._quiet = quiet
        self._silence = silence
        self._heard = time.monotonic()
        self._asked: float | None = None  # when the pending query was sent
        self._answered = threading.Event()

    def heard(self) -> None:
        """Output came."""
        self._heard = time.monotonic()

    def check(self) -> None:
        """Query the server if it was quiet for long; does not wait for the answer.

        :raises EOFError: the last query was not answered in time. The connection is closed.
        """
        now = time.monotonic()
        if self._asked is not None and self._answered.is_set():
            self._heard, self._asked = now, None
        if self._asked is None:
            if now - self._heard > self._quiet:
                self._asked = now
                self._answered.clear()
                threading.Thread(target=self._ask, daemon=True).start()
        elif now - max(self._asked, self._heard) > self._silence:
            self._transport.close()
            raise EOFError(_frozen(self._silence))

    def _ask(self) -> None:
        with suppress(paramiko.SSHException, OSError, EOFError):
            self._transport.global_request(QUESTION, wait=True)
            if self._transport.is_active():  # a closed connection ends the wait, too
                self._answered.set()


@contextmanager
def bounded(transport: paramiko.Transport, seconds: float) -> Iterator[None]:
    """Close the connection if the with-block takes longer: paramiko waits without limit for the answer to a request.

    :raises EOFError: it took longer.
    """
    late = threading.Event()

    def close() -> None:
        late.set()
        transport.close()

    timer = threading.Timer(seconds, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (paramiko.SSHException, OSError, EOFError) as error:
        if late.is_set():
            raise EOFError(_frozen(seconds)) from error
        raise
    finally:
        timer.cancel()


def _frozen(seconds: float) -> str:
    return f"Its ssh server said nothing for {seconds:.0f} s, though the connection stands: it is frozen or overloaded."
