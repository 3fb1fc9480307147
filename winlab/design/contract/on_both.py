"""Calls for nodes of both systems, with their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from winlab.design.cni.model import HnsNetwork, Masquerade
from winlab.design.contract.call import BOTH, LINUX_ONLY, QUESTION, WINDOWS_ONLY, Call, CallResult

Service = Literal["running", "stopped", "absent"]
Sha256ByName = dict[str, str]


class Changed(CallResult):
    """Whether anything had to be done."""

    changed: bool


class Pushed(Changed):
    """The program that is installed now."""

    sha256: str


class LogTexts(CallResult):
    """The ends of logs, by name."""

    logs: dict[str, str]


class ServiceFacts(CallResult):
    """A service of the node."""

    service: Service


class Joined(Changed):
    """The node is part of the cluster."""

    joined: Literal[True]


@dataclass(frozen=True)
class RouteSetting:
    """A route to a network by a node's address."""

    to: str
    via: str


@dataclass(frozen=True, kw_only=True)
class Cni(Call[Changed]):
    """CNI configurations, and on Windows the HNS network."""

    script, on = "cni", BOTH
    files: dict[str, str]  # texts by names
    network: HnsNetwork | None = field(default=None, metadata=WINDOWS_ONLY)

    def texts(self) -> dict[str, str]:
        """The configurations."""
        return {f"cni/{name}": text for name, text in self.files.items()}


@dataclass(frozen=True, kw_only=True)
class Routes(Call[Changed]):
    """Set exactly these routes to other nodes' pods. On Windows the plug-in's own policies do source NAT."""

    script, on = "routes", BOTH
    routes: list[RouteSetting]
    masquerade: Masquerade | None = field(default=None, metadata=LINUX_ONLY)


@dataclass(frozen=True, kw_only=True)
class Push(Call[Pushed]):
    """Replace a program by the one on the CD, or restore its original."""

    script, on = "push", BOTH
    program: str
    restore: bool


@dataclass(frozen=True, kw_only=True)
class LoadImages(Call[Changed]):
    """Load the CD's images; on Linux only the named ones, if any are named."""

    script, on = "load", BOTH
    quiet = 7200.0  # one image is one command of containerd's; those with a whole Windows have gigabytes
    images: list[str] | None = field(default=None, metadata=LINUX_ONLY)


@dataclass(frozen=True, kw_only=True)
class Logs(Call[LogTexts]):
    """The last lines of the logs that matter when a node does not become Ready."""

    script, on = "logs", BOTH
    quiet = QUESTION
    lines: int = 60  # 1 to 10000
    everything: bool = field(default=False, metadata=WINDOWS_ONLY)  # the network, containers, events and more, too

    @property
    def silence(self) -> float:
        """Everything takes longer: Windows' whole logs are searched for events."""
        return QUESTION * 2 if self.everything else QUESTION


@dataclass(frozen=True, kw_only=True)
class LinkFault:
    """What happens to the packets between this node and another one.

    The other node is identified by its MAC; behind a router, by its addresses and the networks of its pods.
    """

    mac: str
    addresses: list[str]
    loss: float = 0  # percent, in each direction
    delay: int = 0  # milliseconds, of what this node sends
    jitter: int = 0  # by how many milliseconds that varies


@dataclass(frozen=True, kw_only=True)
class Faults(Call[Changed]):
    """Make exactly these faults active, including after a restart. Windows can't lose or delay packets."""

    script, on = "faults", BOTH
    links: list[LinkFault] | None = field(default=None, metadata=LINUX_ONLY)
    skew: int | None = None  # seconds by which the clock is ahead
    free: int | None = None  # bytes that stay free on the system's disk
    now: int = field(default=0, metadata=WINDOWS_ONLY)  # seconds since 1970, by the host's clock; Linux has its RTC


@dataclass(frozen=True, kw_only=True)
class Logins(Call[Changed]):
    """What logs in to the node, and what it is recognized by.

    A copy of a lab has its origin's. With *former*, that key can't log in any more; until then both can.
    """

    script, on = "logins", BOTH
    ssh_key: str  # public
    host_key: str = field(repr=False)
    host_key_public: str
    former: str | None = None  # a public key
    user: str = field(default="", metadata=LINUX_ONLY)  # whose keys they are; on Windows the Administrator's
    password: str = field(default="", repr=False, metadata=WINDOWS_ONLY)
    pfx: str = field(default="", repr=False, metadata=WINDOWS_ONLY)  # the certificate and key of WinRM, in base64
    pfx_password: str = field(default="", repr=False, metadata=WINDOWS_ONLY)
