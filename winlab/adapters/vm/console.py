"""The serial console of a running domain, connected to the terminal."""

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
        raise UsageError("The serial console needs a terminal.", cure="For the log so far, use 'winlab serial --log'.")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def join(conn: libvirt.virConnect, machine: domains.Named) -> None:
    """Connect the domain's first serial port to the terminal until Ctrl-] or until the domain ends.

    :raises UsageError: there is no terminal.
    """
    domain = domains.get(conn, machine)
    stream = conn.newStream(libvirt.VIR_STREAM_NONBLOCK)
    with explained(
        f"The serial console of '{machine.domain}' can't be opened.",
        cure="The node must be running: see 'winlab status'.",
    ):
        domain.openConsole(None, stream, 0)
    try:
        with _raw_terminal() as terminal:
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
                if heard == -2:  # nothing to read now
                    continue
                if not heard:
                    break
                os.write(sys.stdout.fileno(), heard)
    finally:
        # The terminal is restored by now: libvirtd may not answer, and Ctrl-C must end that. The stream ended if the
        # domain did
        with suppress(libvirt.libvirtError):
            stream.abort()
