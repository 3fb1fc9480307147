"""What a plan has to know of a cluster made elsewhere, which workers of ours join."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ForeignCluster:
    """What is known of a cluster made elsewhere.

    ``advertised`` is the URL of its API server in its own cluster-info, which nodes use: kubeadm goes on with it,
    whatever server it was given (k8s.io/kubernetes, cmd/kubeadm/app/discovery/discovery.go). ``server`` says where that
    leads to, if the person knows better than the lab's name servers. ``ca`` is its CA (PEM), ``cni`` the profile that
    its pod network is, None where it is none that winlab knows; ``cni_note`` says what was seen.
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

    @property
    def endpoint(self) -> str:
        """Host and port of the API server as its nodes know it."""
        return urlsplit(self.advertised).netloc

    @property
    def external(self) -> str:
        """Host and port to which that leads."""
        return urlsplit(self.server).netloc

    @property
    def minor(self) -> int:
        """The number after ``1.``: 36."""
        return int(self.version.split(".")[1])
