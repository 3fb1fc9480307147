"""The serial console of a running domain, joined to the terminal."""

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


@contextmanager
def _raw_terminal() -> Iterator[int]:
    if not sys.stdin.isatty():
        raise UsageError("The serial console needs a terminal.", cure="For the log so far, take 'winlab serial --log'.")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def join(conn: libvirt.virConnect, name: str) -> None:
    """Join the domain's first serial port to the terminal until Ctrl-] or the domain's end.

    :raises UsageError: there is no terminal.
    """
    domain = domains.get(conn, name)
    stream = conn.newStream(libvirt.VIR_STREAM_NONBLOCK)
    with explained(f"The serial console of '{name}' can't be opened.", cure="The node must run: see 'winlab status'."):
        domain.openConsole(None, stream, 0)
    with _raw_terminal() as terminal:
        try:
            while True:
                ready, _, _ = select.select([terminal], [], [], 0.02)
                if ready:
                    typed = os.read(terminal, 1024)
                    if LEAVE in typed:
                        break
                    stream.send(typed)
                try:
                    heard = stream.recv(4096)
                except libvirt.libvirtError:
                    break  # the domain ended
                if heard == -2:  # nothing now
                    continue
                if not heard:
                    break
                os.write(sys.stdout.fileno(), heard)
        finally:
            # where the domain ended, so did the stream
            with suppress(libvirt.libvirtError):
                stream.abort()
