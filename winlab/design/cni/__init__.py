"""CNI profiles: how the pods of a lab are connected, chosen with ``--set network.cni=...``.

One :class:`~winlab.design.cni.model.PodNetwork` is the source of both halves, so that Linux and Windows can't
disagree on a VNI, a port, a CIDR or an MTU. Everything here is pure; docs/cni.md says what the profiles are for.
"""

from __future__ import annotations

from winlab.design.catalog.artifact import System
from winlab.design.cni.calico import CalicoBgp, CalicoVxlan
from winlab.design.cni.elsewhere import Elsewhere
from winlab.design.cni.flannel import FlannelVxlan
from winlab.design.cni.host_gw import HostGateway
from winlab.design.cni.l3 import L3
from winlab.design.cni.model import PodNetwork
from winlab.design.cni.profile import Profile
from winlab.errors import UsageError

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (CalicoVxlan(), CalicoBgp(), FlannelVxlan(), HostGateway(), L3())
}

ELSEWHERE = Elsewhere()  # nobody chooses it: it is what Linux workers of a cluster made elsewhere have


def names() -> list[str]:
    """The names of all profiles to choose from."""
    return list(PROFILES)


def get(name: str) -> Profile:
    """The profile of this name.

    :raises UsageError: there is none.
    """
    if name == ELSEWHERE.name:
        return ELSEWHERE
    if name not in PROFILES:
        raise UsageError(
            f"There is no CNI profile '{name}'.", cure=f"Choose with --set network.cni=...: {', '.join(PROFILES)}."
        )
    return PROFILES[name]


def require_rehearsal(profile: Profile) -> None:
    """See that the profile can take part in a rehearsal.

    :raises UsageError: it can't; the message says why, and which can.
    """
    if profile.no_rehearsal:
        able = [name for name, other in PROFILES.items() if not other.no_rehearsal]
        raise UsageError(
            f"The CNI profile '{profile.name}' can't be rehearsed.",
            why=profile.no_rehearsal,
            cure=f"Leave network.cni out, or choose {' or '.join(sorted(able))}.",
        )


def require_support(profile: Profile, os: System, release: str = "") -> None:
    """See that the profile can run with this system at all.

    :raises UsageError: it can't.
    """
    support = profile.support(os, release)
    if support.level == "refused":
        raise UsageError(f"The CNI profile '{profile.name}' can't be had with this system.", why=support.text)


def network(
    profile: Profile,
    *,
    pod_cidr: str,
    service_cidr: str,
    lab_cidr: str,
    external_cidr: str,
    mtu: int,
    cluster_dns: str,
    cluster_domain: str,
) -> PodNetwork:
    """The pods' network for a profile, with its encapsulation.

    What is wrong with it, :func:`winlab.design.cni.checks.check` says.
    """
    return PodNetwork(
        profile=profile.name,
        pod_cidr=pod_cidr,
        service_cidr=service_cidr,
        lab_cidr=lab_cidr,
        external_cidr=external_cidr,
        mtu=mtu,
        cluster_dns=cluster_dns,
        cluster_domain=cluster_domain,
        encapsulation=profile.encapsulation,
        vni=profile.vni,
        port=profile.port,
    )
