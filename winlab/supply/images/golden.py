"""Golden images in the cache of images: besides a disk's manifest they have facts of their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from winlab import files
from winlab.design.catalog import recipes
from winlab.design.plan.node_plan import NodePlan
from winlab.events import Progress
from winlab.supply.images import cache
from winlab.supply.images.cache import CachedImage


@dataclass(frozen=True)
class Golden:
    """A golden image: its key, its file, and the facts in its manifest."""

    key: str
    image: CachedImage
    facts: dict[str, Any]

    @property
    def path(self) -> Path:
        """The compressed qcow2 file."""
        return self.image.path

    @property
    def days_left(self) -> int | None:
        """The remaining days of its evaluation; None for a licence that does not expire."""
        ends = self.facts.get("evaluation_ends")
        return None if ends is None else (datetime.fromisoformat(ends) - datetime.now(UTC)).days


def cache_key(key: str) -> str:
    """The cache's key, 64 hex digits, of the golden image with this key."""
    return hashlib.sha256(json.dumps({"golden": key}).encode()).hexdigest()


def entries() -> list[Golden]:
    """All golden images in the cache, by their recipes and age (oldest first)."""
    images = []
    for image in cache.entries():
        facts = cache.manifest(image).get("golden")
        if facts is not None and image.key == cache_key(str(facts["key"])):  # otherwise it was planted
            images.append(Golden(str(facts["key"]), image, facts))
    return images


def find(key: str) -> Golden | None:
    """The golden image with this key; None if it is not cached."""
    return next((one for one in entries() if one.key == key), None)


def keep(node: NodePlan, key: str, fill: Callable[[Path], dict[str, Any]], progress: Progress) -> Golden:
    """Put a golden image into the cache.

    :param fill: writes the disk to a path that does not exist yet; gives the facts for the manifest.
    """
    facts: dict[str, Any] = {}

    def write(output: Path) -> tuple[str, str]:
        facts.update(fill(output), key=key)
        progress.say("reading the image's digest")
        return files.sha256(output), "sysprep"

    recipe = recipes.get(node.image).model_copy(update={"format": "qcow2"})
    image = cache.keep(recipe, cache_key(key), write, progress, lambda: {"golden": facts})
    return Golden(key, image, cache.manifest(image)["golden"])
