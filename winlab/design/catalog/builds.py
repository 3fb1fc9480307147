"""How an extension's programs and images are built from a Go module, for the source ``build``. Pure.

Rows ``builds`` of an extension's ``pins.yaml``::

    builds:
    - module: sigs.k8s.io/metrics-server
      programs: {metrics-server: sigs.k8s.io/metrics-server/cmd/metrics-server}
      stamps: {k8s.io/client-go/pkg/version.gitVersion: "{version}"}
      images:
      - repository: registry.k8s.io/metrics-server/metrics-server
        programs: {metrics-server: /metrics-server}
        entrypoint: [/metrics-server]
        user: "65534"

The module's version is that of the requested program or image. It comes from Go's module proxy, which provides its
sums; everything that its own go.mod pins is pinned.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from winlab.design.system import SystemName


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageBuild(_Row):
    """A Linux image of one layer: programs and where they go, and how it starts."""

    repository: str = Field(pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+$", description="without the tag")
    programs: dict[str, str] = Field(min_length=1, description="by name, the path in the image")
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...] = ()
    user: str = ""


class GoBuild(_Row):
    """Programs of one Go module, linked statically without C, and images of them."""

    module: str
    os: SystemName = "linux"
    programs: dict[str, str] = Field(min_length=1, description="by name, the import path of the package")
    stamps: dict[str, str] = Field(
        default={}, description="variables to set (-X); {version} and {date} stand for those of the release"
    )
    tags: tuple[str, ...] = ()
    images: tuple[ImageBuild, ...] = ()
