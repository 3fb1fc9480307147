"""Where winlab keeps things, and names shared by all its parts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from winlab.digits import is_number

DEFAULT_LAB = "lab"
POOL = "winlab"  # libvirt storage pool, made by `winlab host setup`
POOL_PATH = Path("/var/lib/winlab/pool")
BRIDGE = "br-winlab"  # external OVS bridge: the host's leg into the labs
INTEGRATION_BRIDGE = "br-int"
PHYSNET = "winlab"  # name in ovn-bridge-mappings and on the localnet port
EXTERNAL_SWITCH = "winlab-external"  # logical switch with the localnet port, made by `winlab host setup`
HOST_FILE = Path("/etc/winlab/host.yaml")  # what `winlab host setup` found and chose
NB_SOCKET = Path("/run/winlab/ovnnb.sock")  # OVN northbound, for the libvirt group
NORTHBOUND = f"unix:{NB_SOCKET}"
SB_GROUP_SOCKET = NB_SOCKET.with_name("ovnsb.sock")  # OVN southbound, to read, for the group; with several hosts
SB_SOCKET = Path("/run/ovn/ovnsb_db.sock")  # OVN southbound, which OVN opens for root alone
LOCAL_LIBVIRT = "qemu:///system"
GROUP = "libvirt"
SHORTEST_STALL = 20  # seconds
SUPPORT_SECONDS = 30


@dataclass(frozen=True)
class Places:
    """Where one site keeps things, and how it is reached.

    ``libvirt`` is a URI, ``northbound`` an address in OVSDB's notation.
    """

    cache: Path
    state: Path
    libvirt: str
    northbound: str


_used: ContextVar[Places | None] = ContextVar("winlab_places", default=None)


@contextmanager
def use(places: Places) -> Iterator[None]:
    """Make the functions below return *places* in this context, whatever the environment says.

    Threads of :class:`winlab.threads.Threads` inherit them; other threads don't.
    """
    token = _used.set(places)
    try:
        yield
    finally:
        _used.reset(token)


def cache_dir() -> Path:
    """The cache of images and downloads; ``WINLAB_CACHE`` moves it."""
    used = _used.get()
    return used.cache if used else Path(os.environ.get("WINLAB_CACHE") or platformdirs.user_cache_path("winlab"))


def state_dir() -> Path:
    """The folder of the labs' secrets and journals; ``WINLAB_STATE`` moves it."""
    used = _used.get()
    return used.state if used else Path(os.environ.get("WINLAB_STATE") or platformdirs.user_state_path("winlab"))


def libvirt_uri() -> str:
    """The hypervisor's libvirt; ``WINLAB_LIBVIRT_URI`` names another."""
    used = _used.get()
    return used.libvirt if used else os.environ.get("WINLAB_LIBVIRT_URI") or LOCAL_LIBVIRT


def northbound() -> str:
    """The OVN northbound database, in OVSDB's notation; ``WINLAB_OVN_NB`` names another."""
    used = _used.get()
    return used.northbound if used else os.environ.get("WINLAB_OVN_NB") or NORTHBOUND


def network_is_here() -> bool:
    """Whether the labs' network is this host's: of another one, neither bridge nor firewall can be seen."""
    return northbound().startswith("unix:")


def check_environment() -> None:
    """Check the variables that no option stands for.

    :raises UsageError: one is not valid.
    """
    from winlab.errors import UsageError

    stall_seconds()
    support_seconds()
    if not (address := northbound()).startswith(("unix:", "tcp:", "ssl:", "ssh:")):
        raise UsageError(
            f"WINLAB_OVN_NB is '{address}'.",
            cure="Give an address in OVSDB's notation, such as unix:/run/ovn/ovnnb_db.sock or ssl:192.0.2.7:6641.",
        )


def stall_seconds() -> float:
    """Seconds without a sign of life after which a guest counts as stalled; ``WINLAB_STALL_SECONDS`` sets it.

    :raises UsageError: the variable is not a valid number of seconds.
    """
    from winlab.errors import UsageError

    text = os.environ.get("WINLAB_STALL_SECONDS") or "900"
    if not is_number(text) or int(text) < SHORTEST_STALL:
        raise UsageError(
            f"WINLAB_STALL_SECONDS is '{text}'.",
            cure=f"Give a whole number of seconds, {SHORTEST_STALL} or more. Windows is silent for minutes.",
        )
    return float(text)


def support_seconds() -> float:
    """Seconds that a command which failed may take for an archive; ``WINLAB_SUPPORT_SECONDS`` sets it, 0: none.

    :raises UsageError: the variable is not a valid number of seconds.
    """
    from winlab.errors import UsageError

    text = os.environ.get("WINLAB_SUPPORT_SECONDS") or str(SUPPORT_SECONDS)
    if not is_number(text):
        raise UsageError(f"WINLAB_SUPPORT_SECONDS is '{text}'.", cure="Give a whole number of seconds, or 0.")
    return float(text)
