"""What a plan needs to know about an external cluster that winlab's workers join."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from winlab.design.cni.model import Lack
from winlab.design.system import SystemName

HTTPS = 443


@dataclass(frozen=True)
class LocalBridge:
    """A bridge of this host that nodes of an external cluster are on, such as a container network's.

    ``address`` is the host's own on it, and ``cidr`` the network that it is in.
    """

    name: str
    cidr: str
    address: str


@dataclass(frozen=True)
class ForeignCluster:
    """What is known about an external cluster.

    ``advertised`` is the URL of the API server that nodes use: the one that the cluster publishes, if it does.
    ``server`` is the address that it resolves to, if the user gave one in place of the lab's name servers. ``ca`` is
    the cluster's CA (PEM). ``cni`` is the profile of its pod network, None if winlab does not know it; ``cni_note``
    says what was found. ``kind`` is what made it. ``proxies`` are the systems on whose nodes it runs kube-proxy itself.
    With ``allocates`` it gives each node a pod CIDR; with ``in_agents`` its own agents connect pods, and no DaemonSet.
    ``own_half`` are its DaemonSets that connect the pods of Windows nodes. ``overlays`` are the backends of flannel
    that its nodes publish, with their VNIs. Windows nodes need what its network ``lacks``. ``addresses`` are the IPv4
    addresses of its nodes. ``on_link``: each of them has routes to the others' pods by their addresses, which is
    possible in one network alone. ``bridge`` is the one that they are on, if workers are to be attached to it.
    """

    server: str
    advertised: str
    ca: str
    version: str
    pod_cidr: str
    service_cidr: str
    dns: str
    domain: str
    cni: str | None
    cni_note: str
    nodes: tuple[str, ...]
    kind: str = "other"
    proxies: tuple[SystemName, ...] = ("linux",)
    allocates: bool = True
    in_agents: bool = False
    own_half: tuple[str, ...] = ()
    overlays: frozenset[tuple[str, int | None]] = frozenset()
    lacks: tuple[Lack, ...] = ()
    addresses: tuple[str, ...] = ()
    on_link: bool = False
    bridge: LocalBridge | None = None

    @property
    def endpoint(self) -> str:
        """Host and port of the API server as its nodes use it."""
        return _with_port(self.advertised)

    @property
    def external(self) -> str:
        """Host and port that it resolves to."""
        return _with_port(self.server)

    @property
    def minor(self) -> int:
        """The number after ``1.``: 36."""
        return int(self.version.split(".")[1])


def _with_port(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc if parts.port is not None else f"{parts.netloc.rstrip(':')}:{HTTPS}"
