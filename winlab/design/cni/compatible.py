"""Whether a Windows Server release and a CNI profile work with the versions of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection

from winlab.design import cni
from winlab.design.catalog import versions
from winlab.design.catalog.versions import Versions, WindowsRules, build_number, summary
from winlab.errors import UsageError


def newest(minor: int, windows_releases: Collection[str], profile: str) -> Versions | None:
    """The newest combination up to 1.*minor* that is known to work with all of this.

    If none is, the newest of all up to there, of which :func:`check` says what is wrong; None if there is none.
    """
    rows = sorted((row for row in versions.load().combinations if row.minor <= minor), key=lambda row: -row.minor)
    working = (row for row in rows if _works(row, windows_releases, profile))
    return next(working, rows[0] if rows else None)


def held_back(chosen: Versions, windows_releases: Collection[str], profile: str) -> bool:
    """Whether the releases of Windows and the profile are why the combination is not a newer one, up to the default."""
    default = versions.get()
    rows = [row for row in versions.load().combinations if chosen.minor < row.minor <= default.minor]
    return bool(rows) and not _works(min(rows, key=lambda row: row.minor), windows_releases, profile)


def check(chosen: Versions, windows_release: str, build: str | None, profile: str) -> None:
    """Refuse a Windows Server release or a CNI profile that does not work with the versions.

    :param windows_release: ``2019``, ``2022`` or ``2025``.
    :param build: the build of the medium (``20348.2762``, ``10.0.20348.2762``); None if not known yet.
    :param profile: the CNI profile.
    :raises UsageError: they don't; the message gives every reason and the nearest combination that works.
    """
    known = versions.load().windows
    rules = known.get(windows_release)
    if rules is None:
        raise UsageError(
            f"winlab does not know Windows Server {windows_release}.", cure=f"It knows {', '.join(sorted(known))}."
        )
    reasons = _build_reasons(rules, windows_release, build, profile) if build is not None else []
    cures = ["Take newer media, or install Windows' updates into these."] if reasons else []
    if chosen.known_good and profile not in _profiles(chosen, windows_release):
        support = cni.get(profile).support(windows_release)
        reasons += [support.text] if support.level == "refused" else []
        reasons.append(_no_profile(chosen, windows_release))
        cures.append(_instead(chosen, windows_release, profile))
    if reasons:
        raise UsageError(
            f"Kubernetes {chosen.kubernetes}, Windows Server {windows_release}"
            f"{f' ({build})' if build else ''} and the CNI profile {profile} don't work together.",
            why=" ".join(reasons),
            cure=" ".join(cures),
        )


def _profiles(row: Versions, release: str) -> list[str]:
    """The profiles known to work with this minor version on this release, in the registry's order."""
    return [name for name, profile in cni.profiles().items() if profile.known.goes(name, row.name, release)]


def _works(row: Versions, releases: Collection[str], profile: str) -> bool:
    return all(profile in _profiles(row, release) for release in releases)


def _no_profile(chosen: Versions, release: str) -> str:
    working = _profiles(chosen, release)
    if not working:
        return f"Kubernetes {chosen.name} is not known to work on Windows Server {release}."
    return f"Known to work with Kubernetes {chosen.name} on Windows Server {release}: {', '.join(working)}."


def _instead(chosen: Versions, release: str, profile: str) -> str:
    """The nearest combination that has both, otherwise what can be changed."""
    rows = sorted(versions.load().combinations, key=lambda row: (abs(row.minor - chosen.minor), -row.minor))
    for row in rows:
        if profile in _profiles(row, release):
            return f"The nearest that does: --set kubernetes.version={row.name} ({summary(row)})."
    for row in rows:
        if working := _profiles(row, release):
            return f"The nearest that does: --set kubernetes.version={row.name} --set network.cni={working[0]}."
    known = versions.load().windows
    other = max((other for other in known if _profiles(chosen, other)), default=max(known))
    return f"Take Windows Server {other}."


def _build_reasons(rules: WindowsRules, release: str, build: str, profile: str) -> list[str]:
    number = build_number(build)
    if number[0] != rules.build:
        return [f"Windows Server {release} has the build {rules.build}, not {number[0]}."]
    if number < build_number(rules.minimum):
        return [f"The build {build} is too old: {rules.because}. It should be {rules.minimum} or newer."]
    return [
        f"The build {build} is refused: {bad.because}." for bad in cni.get(profile).known.refused if bad.holds(number)
    ]
