"""Ports of a node as ports of this host's loopback, by ssh."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from winlab import loopback
from winlab.adapters.remote import forwarding, free_port
from winlab.errors import UsageError
from winlab.operations import reach
from winlab.site import Site


@dataclass(frozen=True)
class Forward:
    """A port here, and the port of the node's loopback that it leads to."""

    local: int
    remote: int

    @classmethod
    def parse(cls, text: str) -> Forward:
        """``[LOCAL:]REMOTE``: without LOCAL, it is the same port; 0 is any free one.

        :raises UsageError: it is something else.
        """
        found = re.fullmatch(r"(?:([0-9]{0,5}):)?([0-9]{1,5})", text)
        if found is not None:
            remote = int(found[2])
            local = remote if found[1] is None else int(found[1] or 0)
            if 0 < remote < 1 << 16 and local < 1 << 16:
                return cls(local, remote)
        raise UsageError(f"'{text}' is not [LOCAL:]REMOTE.", cure="Give '8080:80', for example.")


@contextmanager
def forwarded(
    lab: str, node: str, site: Site, ports: Sequence[Forward]
) -> Iterator[tuple[list[Forward], Callable[[], str | None]]]:
    """Forward ports for the length of a with-block. Only this host can use them.

    The with-block gets the ports, and a function: None while ssh runs, then its errors.

    :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
    :raises UsageError: a port of this host can't be used.
    :raises GuestError: the node does not run.
    :raises HostError: ssh does not connect.
    """
    made = [Forward(_free(port.local), port.remote) for port in ports]
    options = [f"-L{loopback.ADDRESS}:{one.local}:{loopback.ADDRESS}:{one.remote}" for one in made]
    words = reach.ssh(lab, node, site, (), "-N", "-T", "-o", "ExitOnForwardFailure=yes", *options)
    cure = f"Run 'winlab ssh {node} --lab {lab}' to see why."
    with forwarding(words, lambda: all(loopback.listens(one.local) for one in made), node, cure) as ended:
        yield made, ended


def _free(port: int) -> int:
    try:
        return free_port(port)
    except OSError as error:
        raise UsageError(
            f"The port {port} of this host can't be used.", why=str(error), cure="Name another: LOCAL:REMOTE."
        ) from error
