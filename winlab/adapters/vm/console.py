"""The serial console of a running domain: as a port to read and write, and connected to the terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import libvirt

from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import explained
from winlab.errors import UsageError

LEAVE = 0x1D  # Ctrl-]
CHUNK = 4096  # bytes
NOTHING_YET = -2  # what virStream.recv returns if it would block


@contextmanager
def _raw_terminal() -> Iterator[int]:
    if not sys.stdin.isatty():
        raise UsageError("The serial console needs a terminal.", cure="For the log so far, use 'winlab serial --log'.")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Port:
    """A domain's serial port, as far as libvirt connects it: one reader at a time."""

    def __init__(self, stream: libvirt.virStream) -> None:
        self._stream = stream

    def read(self) -> bytes | None:
        """What has come; empty if that is nothing so far, None if the domain has ended."""
        try:
            heard = self._stream.recv(CHUNK)
        except libvirt.libvirtError:
            return None
        return b"" if heard == NOTHING_YET else heard or None

    def write(self, typed: bytes) -> None:
        """Type into the port; what it has no room for is dropped, as by hardware without flow control.

        :raises WinlabError: the domain has ended.
        """
        with explained("The serial port takes no input.", cure="The node must be running: see 'winlab status'."):
            self._stream.send(typed)


@contextmanager
def opened(conn: libvirt.virConnect, machine: domains.Named) -> Iterator[Port]:
    """The domain's first serial port, for the length of a with-block.

    :raises WinlabError: the domain does not run, or someone else is connected to the port.
    """
    domain = domains.get(conn, machine)
    stream = conn.newStream(libvirt.VIR_STREAM_NONBLOCK)
    with explained(
        f"The serial console of '{machine.domain}' can't be opened.",
        cure="The node must be running ('winlab status'), and no one else connected to its port.",
    ):
        domain.openConsole(None, stream, 0)
    try:
        yield Port(stream)
    finally:
        # libvirtd may not answer, and Ctrl-C must end that. The stream ended if the domain did
        with suppress(libvirt.libvirtError):
            stream.abort()


def join(conn: libvirt.virConnect, machine: domains.Named) -> None:
    """Connect the domain's first serial port to the terminal until Ctrl-] or until the domain ends.

    :raises UsageError: there is no terminal.
    """
    with opened(conn, machine) as port, _raw_terminal() as terminal:  # the terminal is restored first
        while True:
            ready, _, _ = select.select([terminal], [], [], 0.02)
            if ready:
                typed = os.read(terminal, 1024)
                if LEAVE in typed:
                    break
                port.write(typed)
            heard = port.read()
            if heard is None:
                break
            os.write(sys.stdout.fileno(), heard)
