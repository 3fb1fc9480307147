"""A guest's clock: compares it with the host's, and sets it.

A suspended guest's clock stands still, and nodes need not reach a time server. Without this, every report of a node
would be hours old, and its tokens would not be valid yet.
"""

from __future__ import annotations

import time

from winlab.adapters.guests import base
from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.systems import ways
from winlab.adapters.vm import faults
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Named
from winlab.design import fault
from winlab.design.fault.clock import Clock
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError
from winlab.events import Progress

TOLERANCE = 2.0  # seconds
WRONG = 30.0  # seconds: a clock that is never set drifts by some seconds a day, which is harmless
TRIES = 3  # Windows sets its local time, which a change to summer time in between shifts by an hour
MOST = 32  # bytes of an answer


def skew(conn: Connection, machine: Named) -> float:
    """How many seconds a fault puts a machine's clock ahead of the host's; 0 if there is no such fault."""
    recorded = map(fault.read, faults.records(conn, machine))
    return next((float(one.skew) for one in recorded if isinstance(one, Clock)), 0.0)


def difference(guest: Guest, tag: Tag, skew: float = 0.0) -> float:
    """How many seconds the guest's clock is ahead of the host's; negative if it is behind.

    :param skew: how many seconds a fault puts it ahead.

    0 if it is right, as far as can be measured: the guest read its clock some time between the query and the answer.

    :raises GuestError: it can't be asked, or its answer is not a time.
    """
    heard, arrived = base.Kept(MOST), 0.0

    def hear(chunk: bytes) -> None:
        nonlocal arrived
        arrived = arrived or time.time()
        heard(chunk)

    asked = time.time()
    code = guest.execute([ways(tag.system).clock], hear)
    try:
        told = int(str(heard)) / 1000 - skew
    except (ValueError, OverflowError) as error:
        raise GuestError(
            f"The clock of '{tag.node}' can't be read.",
            why=f"Its answer was {str(heard)[:80]!r}, the exit code {code}.",
            cure="Run the same command again.",
        ) from error
    return 0.0 if asked - TOLERANCE <= told <= arrived + TOLERANCE else told - arrived


def settle(guest: Guest, tag: Tag, progress: Progress, skew: float = 0.0) -> float:
    """Set the guest's clock to the host's, unless it is right; returns the seconds by which it was set forward.

    :param skew: as of :func:`difference`.

    :raises GuestError: it can't be set.
    """
    stepped = 0.0
    for _ in range(TRIES):
        off = difference(guest, tag, skew)
        if not off:
            return stepped
        progress.say(f"the clock of {tag.node} is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}: setting it")
        if guest.execute([ways(tag.system).step_clock(round(-off * 1000))]) != 0:
            break
        stepped -= off
    raise GuestError(
        f"The clock of '{tag.node}' can't be set.",
        why=f"It is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the host's.",
        cure="Set it yourself with 'winlab exec', then run the same command again.",
    )
