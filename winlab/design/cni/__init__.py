"""CNI profiles: how the pods of a lab are connected, chosen with ``--set network.cni=...``.

One :class:`~winlab.design.cni.model.PodNetwork` is the source of both halves, so that Linux and Windows can't
disagree on a VNI, a port, a CIDR or an MTU. Everything here is pure; docs/cni.md says what the profiles are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, GetJsonSchemaHandler

from winlab import extensions
from winlab.design.cni.elsewhere import Elsewhere
from winlab.design.cni.model import PodNetwork
from winlab.design.cni.profile import Profile
from winlab.errors import HostError, UsageError
from winlab.near import choose_from

ELSEWHERE = Elsewhere()  # can't be chosen: Linux workers of an external cluster have it


@cache
def profiles() -> dict[str, Profile]:
    """All profiles to choose from, by name: the folders of this package, then those of other packages.

    :raises HostError: one can't be loaded, or two have one name; the message names the package.
    """
    by_name: dict[str, Profile] = {}
    for extension in extensions.load(extensions.CNI):
        value = extension.value
        if not isinstance(value, Sequence) or not all(isinstance(profile, Profile) for profile in value):
            raise HostError(
                f"The package '{extension.origin}' provides no CNI profiles.",
                why=f"Its entry point of the group {extensions.CNI.name} should name a tuple of Profile objects.",
                cure="docs/cni.md explains how to write one.",
            )
        for profile in value:
            if profile.name in (*by_name, ELSEWHERE.name):
                raise HostError(
                    f"Two CNI profiles are called '{profile.name}', one of them from the package '{extension.origin}'.",
                    cure="Uninstall one of the packages.",
                )
            by_name[profile.name] = profile
    return by_name


def names() -> list[str]:
    """The names of all profiles to choose from."""
    return list(profiles())


def get(name: str) -> Profile:
    """The profile of this name.

    :raises UsageError: there is none.
    """
    if name == ELSEWHERE.name:
        return ELSEWHERE
    if name not in profiles():
        raise UsageError(f"There is no CNI profile '{name}'.", cure=f"Choose with --set network.cni=...: {_listed()}.")
    return profiles()[name]


def read() -> None:
    """Load every profile and its file into memory, so that plan making reads nothing.

    :raises HostError: a profile can't be loaded, or its file can't be used.
    """
    for profile in profiles().values():
        profile.load()


def daemon_sets() -> tuple[str, ...]:
    """The names of the DaemonSets that run the profiles on the nodes."""
    return tuple(dict.fromkeys(name for profile in profiles().values() for name in profile.daemon_sets))


def _listed() -> str:
    return ", ".join(names())


def _choosable(name: str) -> str:
    if name not in profiles():
        raise ValueError(f"there is no CNI profile '{name}'; {choose_from(name, names())}")
    return name


class _Choices:
    """Puts the profiles' names into a JSON Schema when it is generated."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "enum": names()}


ProfileName = Annotated[str, AfterValidator(_choosable), _Choices()]  # a field of a pydantic model


def require_rehearsal(profile: Profile) -> None:
    """Refuse a profile that can't take part in a rehearsal.

    :raises UsageError: it can't; the message says why, and which can.
    """
    if profile.no_rehearsal:
        able = [name for name, other in profiles().items() if not other.no_rehearsal]
        raise UsageError(
            f"The CNI profile '{profile.name}' can't be rehearsed.",
            why=profile.no_rehearsal,
            cure=f"Leave network.cni out, or choose {' or '.join(sorted(able))}.",
        )


def require_support(profile: Profile, release: str) -> None:
    """Refuse a profile that can't run on this release of Windows at all.

    :raises UsageError: it can't.
    """
    support = profile.support(release)
    if support.level == "refused":
        raise UsageError(
            f"The CNI profile '{profile.name}' does not support Windows Server {release}.", why=support.text
        )


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

    Not validated here; :func:`winlab.design.cni.checks.check` does that.
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
