"""Makes hosts one site of winlab's, and waits for what they do."""

from __future__ import annotations

import subprocess  # noqa: TID251 - a type
import time
from collections.abc import Callable

from hosts.host import Host

LIMIT = 120  # seconds: only a hang exceeds it


def within(check: Callable[[], bool], seconds: float = LIMIT) -> None:
    """Wait until it is true; only a hang exceeds the limit."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.3)


def add(first: Host, other: Host) -> None:
    """Add ``h2`` as ``hypervisor-2``, and so on; ssh may take longer than its limit on a busy machine."""
    words = ("hypervisor", "add", f"hypervisor-{other.name[1:]}", f"qemu+ssh://root@{other.name}/system")
    within(lambda: first.winlab(*words, check=False).returncode == 0)


def one_site(first: Host, *others: Host, user: str = "root") -> list[subprocess.CompletedProcess[str]]:
    """Set the first host up, and have the others join it; each has an OVS bridge for tunnels then.

    Returns the first attempt of each of the others to join. It was refused: Open vSwitch did not run yet, so there was
    no bridge for tunnels.

    :param user: who joins, by ssh as the same user on the first host; through sudo if it is not root.
    """
    first.winlab("host", "setup", "--trust-python", user=user)  # the checkout may be a user's
    first.add_tunnel_bridge()
    first.winlab("host", "setup", "--tunnel-address", first.tunnel_address)
    return [_join(host, f"{user}@{first.name}", user) for host in others]


def _join(host: Host, site: str, user: str) -> subprocess.CompletedProcess[str]:
    join = ("host", "setup", "--join", site)
    refused = host.winlab(*join, user=user, check=False)  # it starts Open vSwitch
    host.add_tunnel_bridge()
    host.winlab(*join, "--tunnel-address", host.tunnel_address, user=user)
    return refused
