"""Which Windows a CNI profile works with, from its ``pins.yaml``. Pure.

::

    windows:                  by profile and Kubernetes' minor version, the releases of Windows Server
      calico-vxlan:
        "1.36": ["2022", "2025"]
    refused:                  builds of Windows that are known to break the profiles of this file
    - {first: "20348.2322", last: "20348.2761", because: "it breaks ..."}
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.catalog.releases import Minor, Releases
from winlab.design.catalog.versions import build_number


class BadBuilds(BaseModel):
    """A range of Windows builds that are known to break a profile."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: str
    last: str
    because: str

    def holds(self, build: tuple[int, int]) -> bool:
        """Whether this build is one of them."""
        return build_number(self.first) <= build <= build_number(self.last)


class Known(Releases):
    """The whole file."""

    windows: dict[str, dict[Minor, tuple[str, ...]]] = Field(default={})
    refused: tuple[BadBuilds, ...] = ()

    def goes(self, profile: str, minor: Minor, release: str) -> bool:
        """Whether the profile is known to work with this minor version of Kubernetes on this release of Windows."""
        return release in self.windows.get(profile, {}).get(minor, ())
