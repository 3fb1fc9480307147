"""Kinds of results about external clusters."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.cli.kinds.base import Item


@dataclass(frozen=True, kw_only=True)
class Cluster(Item):
    """A cluster that this host shows, the options of ``join`` for it, and what its distribution needs."""

    distribution: str
    where: str
    use: str
    needs: str
    note: str


@dataclass(frozen=True)
class Finding:
    """What is known about a part of a cluster: ``ok``, ``warning``, ``change`` or ``refused``."""

    about: str
    level: str
    says: str
    cure: str


@dataclass(frozen=True, kw_only=True)
class JoinCheck(Item):
    """Whether workers can join an external cluster; the name is its distribution's."""

    version: str
    refused: bool
    findings: list[Finding]
