"""Which versions go together. Pure; the combinations are in images/kubernetes/known-good.yaml.

Which Windows releases and CNI profiles go with them: :mod:`winlab.design.cni.compatible`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from winlab import data, documents
from winlab.design.catalog.pins import Pins
from winlab.errors import UsageError

FILE = "known-good.yaml"
OLDEST_MINOR = 31  # the first with kubeadm.k8s.io/v1beta4, which winlab writes
_NUMBER = "(?:0|[1-9][0-9]{0,3})"
_NAME = re.compile(rf"v?1\.({_NUMBER})(?:\.({_NUMBER}(?:-[a-z]{{1,16}}\.{_NUMBER})?))?")
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
    known_good: bool = Field(True, description="False: the person chose a version that is in no known combination")

    @property
    def minor(self) -> int:
        """The number after ``1.``: 36."""
        return int(self.kubernetes.split(".")[1])

    @property
    def name(self) -> str:
        """The short name: ``1.36``."""
        return f"1.{self.minor}"

    @property
    def by_name(self) -> dict[str, str]:
        """Every version by the name of its field."""
        return self.model_dump(exclude={"known_good"})


class WindowsRules(_Model):
    """What is known about the builds of one release of Windows Server."""

    build: int
    minimum: str
    because: str
    advised: str | None = None
    gain: str = Field(default="", description="what the advised build has that older ones lack")


class KnownGood(_Model):
    """The whole file."""

    default: str
    windows: dict[str, WindowsRules]
    combinations: tuple[Versions, ...] = Field(min_length=1)
    pins: Pins

    @model_validator(mode="after")
    def _consistent(self) -> KnownGood:
        names = [row.name for row in self.combinations]
        if len(set(names)) < len(names):
            raise ValueError("a minor version has two combinations")
        if self.default not in names:
            raise ValueError(f"the default {self.default} is not one of the combinations")
        return self


def load(path: Path | None = None) -> KnownGood:
    """Read the file of known-good combinations; without *path* the one that ships with winlab, read once.

    :raises UsageError: the file is invalid; the message names the field.
    """
    return _own() if path is None else _read(path)


@cache
def _own() -> KnownGood:
    return _read(data.folder("images") / "kubernetes" / FILE)


def _read(path: Path) -> KnownGood:
    try:
        return KnownGood.model_validate(documents.from_yaml(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise UsageError(f"The versions in '{path}' can't be used.", why=str(error)) from error


def names() -> list[str]:
    """The short names of all combinations, the newest first."""
    return [row.name for row in sorted(load().combinations, key=lambda row: -row.minor)]


def get(name: str | None = None, *, allow_untested: bool = False) -> Versions:
    """The known-good versions by their name (``1.36``, ``v1.36``, ``v1.36.3``); None: the default.

    :param allow_untested: accept any Kubernetes version (``v1.36.1``), with the rest from the nearest combination;
        the result is marked as not known good.
    :raises UsageError: there is no such combination; the message names the nearest one.
    """
    wanted = name or load().default
    match = _NAME.fullmatch(wanted.strip())
    if not match:
        raise UsageError(
            f"'{wanted}' is not a version of Kubernetes.",
            cure=f"Give one of {', '.join(names())}, or one like v1.36.3.",
        )
    minor, patch = int(match[1]), match[2]
    good = _nearest(minor)
    release = good.kubernetes if patch is None else f"v1.{minor}.{patch}"
    if good.minor == minor and release == good.kubernetes:
        return good
    if not allow_untested:
        raise UsageError(
            f"Kubernetes {wanted} is not a known-good combination.",
            why=f"Known are {', '.join(f'{other.name} ({other.kubernetes})' for other in load().combinations)}.",
            cure=f"The nearest is --set kubernetes.version={good.name} ({summary(good)})."
            " To try yours anyway, add --set kubernetes.untested=true.",
        )
    if good.minor != minor and patch is None:
        raise UsageError(
            f"winlab knows no release of Kubernetes {wanted}.", cure=f"Give it in full, such as v1.{minor}.0."
        )
    if minor < OLDEST_MINOR:
        raise UsageError(
            f"Kubernetes {wanted} is too old for winlab.",
            why="Its kubeadm does not know the configuration kubeadm.k8s.io/v1beta4.",
            cure=f"The nearest known-good one is {good.name} ({good.kubernetes}).",
        )
    try:
        return Versions.model_validate({**good.model_dump(), "kubernetes": release, "known_good": False})
    except ValidationError as error:
        raise UsageError("These versions can't be used.", why=str(error)) from error


def nearest(minor: int, minors: Iterable[int]) -> int:
    """The one of *minors* nearest to *minor*; the newer one in a tie."""
    return min(minors, key=lambda other: (abs(other - minor), -other))


def _nearest(minor: int) -> Versions:
    rows = {row.minor: row for row in load().combinations}
    return rows[nearest(minor, rows)]


def build_number(text: str) -> tuple[int, int]:
    """``20348.2762``, with or without a leading ``10.0.``, as numbers.

    :raises UsageError: it is not a build number.
    """
    match = re.fullmatch(r"(?:10\.0\.)?([0-9]{5})\.([0-9]+)", text.strip())
    if not match:
        raise UsageError(f"'{text}' is not a build of Windows.", cure="It should look like 20348.2762.")
    return int(match[1]), int(match[2])


def summary(row: Versions) -> str:
    """The main versions, in a few words."""
    return f"Kubernetes {row.kubernetes}, containerd {row.containerd}"
