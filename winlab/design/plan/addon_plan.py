"""A planned add-on. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from winlab.design.catalog.artifact import Artifact


class AddonPlan(BaseModel):
    """A planned add-on: its settings as in the spec, the versions of its parts, and what has to be obtained.

    ``pools`` are the names of its pools that have nodes.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    artifacts: tuple[Artifact, ...] = ()
    pools: tuple[str, ...] = ()
