"""TCP sockets on the loopback, and which users they belong to: it is shared by all users of the host.

Source: man proc_net, and Documentation/networking/proc_net_tcp.rst of Linux.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

ADDRESS = "127.0.0.1"
# a program may also use a socket of IPv6 for an address of IPv4
SOCKETS = ((Path("/proc/net/tcp"), ""), (Path("/proc/net/tcp6"), "0000000000000000FFFF0000"))
ESTABLISHED, LISTENS = "01", "0A"  # states there
NOTHING = "00000000:0000"  # the other end of a socket that listens


def listens(port: int) -> bool:
    """Whether this user listens on a port: another user of this host may have taken it first."""
    return _owner(_written((ADDRESS, port)), NOTHING, LISTENS) == os.geteuid()


def peer(there: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user at the other end of a connection on this host; None if there is none.

    :param there: address and port of the other end.
    :param here: those of this one.
    """
    return _owner(_written(there), _written(here), ESTABLISHED)


def _owner(local: str, remote: str, state: str) -> int | None:
    for path, mapped in SOCKETS:
        wanted = [mapped + local, mapped + remote, state]
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[1:4] == wanted:
                return int(words[7])
    return None


def _written(address: tuple[str, int]) -> str:
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
