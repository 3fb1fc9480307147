"""Which versions go together, and whether a Windows release and a CNI profile go with them. Pure.

The combinations stand in images/kubernetes/known-good.yaml.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from winlab import data
from winlab.design.catalog.pins import Pins
from winlab.errors import UsageError

FILE = "known-good.yaml"
OLDEST_MINOR = 31  # the first with kubeadm.k8s.io/v1beta4, which is what winlab writes
_NAME = re.compile(r"v?1\.([0-9]+)(?:\.([0-9]+(?:-[a-z]+\.[0-9]+)?))?")
_PLAIN = r"^[0-9]+\.[0-9]+\.[0-9]+$"
_WITH_V = r"^v[0-9]+\.[0-9]+\.[0-9]+$"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Versions(_Model):
    """The versions of one cluster, each as its publisher writes it."""

    kubernetes: str = Field(pattern=r"^v1\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$")
    containerd: str = Field(pattern=_PLAIN)
    runc: str = Field(pattern=_PLAIN)
    crictl: str = Field(pattern=_PLAIN)
    cni_plugins: str = Field(pattern=_PLAIN)
    etcd: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+-[0-9]+$", description="tag of registry.k8s.io/etcd")
    coredns: str = Field(pattern=_WITH_V, description="tag of registry.k8s.io/coredns/coredns")
    pause: str = Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")
    agnhost: str = Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$")
    calico: str = Field(pattern=_WITH_V)
    tigera_operator: str = Field(pattern=_WITH_V, description="the operator that this Calico's manifest runs")
    flannel: str = Field(pattern=_WITH_V)
    known_good: bool = Field(True, description="False: the person chose a version that is in no known combination")

    @property
    def minor(self) -> int:
        """The number after ``1.``: 36."""
        return int(self.kubernetes.split(".")[1])

    @property
    def name(self) -> str:
        """The short name: ``1.36``."""
        return f"1.{self.minor}"


class Combination(Versions):
    """A known-good combination, with the CNI profiles that go with each release of Windows Server."""

    windows: dict[str, tuple[str, ...]]

    def versions(self) -> Versions:
        """The versions alone."""
        return Versions(**self.model_dump(exclude={"windows"}))


class BadBuilds(_Model):
    """Builds of Windows, the first to the last, that are known to break the CNI profiles *profiles*."""

    first: str
    last: str
    profiles: tuple[str, ...]
    because: str

    def holds(self, build: tuple[int, int], profile: str) -> bool:
        """Whether this build and this profile are meant."""
        return profile in self.profiles and _build(self.first) <= build <= _build(self.last)


class WindowsRules(_Model):
    """What is known of the builds of one release of Windows Server."""

    build: int
    minimum: str
    because: str
    refused: tuple[BadBuilds, ...] = ()


class KnownGood(_Model):
    """The whole file."""

    default: str
    windows: dict[str, WindowsRules]
    combinations: tuple[Combination, ...] = Field(min_length=1)
    pins: Pins

    @model_validator(mode="after")
    def _consistent(self) -> KnownGood:
        names = [row.name for row in self.combinations]
        if len(set(names)) < len(names):
            raise ValueError("a minor version has two combinations")
        if self.default not in names:
            raise ValueError(f"the default {self.default} is no combination")
        unknown = {release for row in self.combinations for release in row.windows} - set(self.windows)
        if unknown:
            raise ValueError(f"nothing is said of the builds of Windows {', '.join(sorted(unknown))}")
        return self


def load(path: Path | None = None) -> KnownGood:
    """Read the file of known-good combinations; without *path* the one that comes with winlab, read once.

    :raises UsageError: the file is not what it should be; the message names the field.
    """
    return _own() if path is None else _read(path)


@cache
def _own() -> KnownGood:
    return _read(data.folder("images") / "kubernetes" / FILE)


def _read(path: Path) -> KnownGood:
    try:
        return KnownGood.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, OSError) as error:
        raise UsageError(f"The versions in '{path}' can't be used.", why=str(error)) from error


def names() -> list[str]:
    """The short names of all combinations, the newest first."""
    return [row.name for row in sorted(load().combinations, key=lambda row: -row.minor)]


def get(name: str | None = None, *, allow_untested: bool = False) -> Versions:
    """The known-good versions by their name (``1.36``, ``v1.36``, ``v1.36.3``); None: the default.

    :param allow_untested: take any Kubernetes version (``v1.36.1``), with all else from the nearest combination; the
        result says that it is not known good.
    :raises UsageError: there is no such combination; the message names the nearest one.
    """
    wanted = name or load().default
    found = _NAME.fullmatch(wanted.strip())
    if not found:
        raise UsageError(
            f"'{wanted}' is no version of Kubernetes.", cure=f"Give one of {', '.join(names())}, or one like v1.36.3."
        )
    minor, patch = int(found[1]), found[2]
    row = _nearest(minor)
    good = row.versions()
    release = good.kubernetes if patch is None else f"v1.{minor}.{patch}"
    if row.minor == minor and release == good.kubernetes:
        return good
    if not allow_untested:
        raise UsageError(
            f"Kubernetes {wanted} is not a known-good combination.",
            why=f"Known are {', '.join(f'{other.name} ({other.kubernetes})' for other in load().combinations)}.",
            cure=f"The nearest is --set kubernetes.version={row.name} ({_summary(good)})."
            " To try yours all the same, add --set kubernetes.untested=true.",
        )
    if row.minor != minor and patch is None:
        raise UsageError(
            f"Of Kubernetes {wanted} winlab knows no release.", cure=f"Give it in full, such as v1.{minor}.0."
        )
    if minor < OLDEST_MINOR:
        raise UsageError(
            f"Kubernetes {wanted} is too old for winlab.",
            why="Its kubeadm does not know the configuration kubeadm.k8s.io/v1beta4.",
            cure=f"The nearest known-good one is {row.name} ({row.kubernetes}).",
        )
    try:
        return Versions.model_validate({**good.model_dump(), "kubernetes": release, "known_good": False})
    except ValidationError as error:
        raise UsageError("These versions can't be used.", why=str(error)) from error


def check(versions: Versions, windows_release: str, build: str | None, profile: str) -> None:
    """See that a release of Windows Server and a CNI profile go with the versions. Nothing is touched.

    :param windows_release: ``2019``, ``2022`` or ``2025``.
    :param build: the build of the medium (``20348.2762``, ``10.0.20348.2762``); None: not known yet.
    :param profile: the CNI profile.
    :raises UsageError: they don't; every reason is given, and the nearest combination that does.
    """
    rules = load().windows.get(windows_release)
    if rules is None:
        raise UsageError(
            f"winlab knows nothing of Windows Server {windows_release}.",
            cure=f"It knows {', '.join(sorted(load().windows))}.",
        )
    reasons = _build_reasons(rules, windows_release, build, profile) if build is not None else []
    cures = ["Take newer media, or install Windows' updates into these."] if reasons else []
    if versions.known_good and profile not in _combination(versions).windows.get(windows_release, ()):
        reasons.append(_no_profile(versions, windows_release))
        cures.append(_instead(versions, windows_release, profile))
    if reasons:
        raise UsageError(
            f"Kubernetes {versions.kubernetes}, Windows Server {windows_release}"
            f"{f' ({build})' if build else ''} and the CNI profile {profile} do not go together.",
            why=" ".join(reasons),
            cure=" ".join(cures),
        )


def _combination(versions: Versions) -> Combination:
    return _nearest(versions.minor)


def _nearest(minor: int) -> Combination:
    """The combination of this minor, or of the nearest one; of two equally near the newer."""
    return min(load().combinations, key=lambda row: (abs(row.minor - minor), -row.minor))


def _no_profile(versions: Versions, release: str) -> str:
    profiles = _combination(versions).windows.get(release)
    if profiles is None:
        return f"Kubernetes {versions.name} is not known to work on Windows Server {release}."
    return f"With Kubernetes {versions.name} on Windows Server {release} are known: {', '.join(profiles)}."


def _instead(versions: Versions, release: str, profile: str) -> str:
    """The nearest combination that has both, else what can be changed."""
    rows = sorted(load().combinations, key=lambda row: (abs(row.minor - versions.minor), -row.minor))
    for row in rows:
        if profile in row.windows.get(release, ()):
            return f"The nearest that does: --set kubernetes.version={row.name} ({_summary(row)})."
    for row in rows:
        if release in row.windows:
            first = row.windows[release][0]
            return f"The nearest that does: --set kubernetes.version={row.name} --set network.cni={first}."
    other = max(_combination(versions).windows)
    return f"Take Windows Server {other}."


def _build_reasons(rules: WindowsRules, release: str, build: str, profile: str) -> list[str]:
    number = _build(build)
    if number[0] != rules.build:
        return [f"Windows Server {release} has the build {rules.build}, not {number[0]}."]
    if number < _build(rules.minimum):
        return [f"The build {build} is too old: {rules.because}. It should be {rules.minimum} or newer."]
    return [f"The build {build} is refused: {bad.because}." for bad in rules.refused if bad.holds(number, profile)]


def _build(text: str) -> tuple[int, int]:
    """``20348.2762``, with or without ``10.0.`` before it, as numbers.

    :raises UsageError: it is no build.
    """
    found = re.fullmatch(r"(?:10\.0\.)?([0-9]{5})\.([0-9]+)", text.strip())
    if not found:
        raise UsageError(f"'{text}' is no build of Windows.", cure="It should look like 20348.2762.")
    return int(found[1]), int(found[2])


def _summary(row: Versions) -> str:
    return f"Kubernetes {row.kubernetes}, containerd {row.containerd}"
