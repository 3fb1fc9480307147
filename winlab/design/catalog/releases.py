"""``pins.yaml`` of an extension: the versions of its parts, where they are published, how they are built. Pure.

::

    versions:                 by Kubernetes' minor version, the releases that go with it
      "1.36": {metrics-server: v0.9.0}
    pins:                     rows as in images/kubernetes/known-good.yaml
      images:
      - {reference: registry.k8s.io/..., os: linux, digest: "sha256:..."}
    builds:                   see winlab.design.catalog.builds

A minor version without a row takes those of the nearest one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field

from winlab import documents
from winlab.design.catalog.builds import GoBuild
from winlab.design.catalog.pins import Pins
from winlab.design.catalog.versions import nearest
from winlab.errors import HostError

FILE = "pins.yaml"
Minor = str  # "1.36"


class Releases(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: dict[Minor, dict[str, str]] = Field(default={}, description="by Kubernetes' minor version")
    pins: Pins = Pins()
    builds: tuple[GoBuild, ...] = ()

    def of(self, minor: int) -> dict[str, str]:
        """The versions that go with Kubernetes 1.*minor*, by name."""
        rows = {number(name): row for name, row in self.versions.items()}
        return dict(rows[nearest(minor, rows)]) if rows else {}


R = TypeVar("R", bound=Releases)


@cache
def read(path: Path, model: type[R]) -> R:
    """Read a file of releases, once.

    :raises HostError: the file is invalid; the message names the field.
    """
    try:
        return model.model_validate(documents.from_yaml(path.read_text(encoding="utf-8")) or {})
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise HostError(f"The versions and pins in '{path}' can't be used.", why=str(error)) from error


def number(minor: Minor) -> int:
    """36 for ``1.36``."""
    return int(minor.partition(".")[2])
