"""`winlab image prune`: what it leaves alone."""

from __future__ import annotations

from pathlib import Path

from winlab.design.catalog.recipes import Build, Recipe
from winlab.events import Quiet
from winlab.operations import prune
from winlab.site import Site
from winlab.supply.images import cache, library


def test_an_image_without_an_installed_builder_stays() -> None:
    """Its recipe's key is not known, so no one can say whether it is still needed."""

    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(b"media")
        return "0" * 64, "built"

    build = Build(builder="of-another-package", package="another-package")
    recipe = Recipe(name="a", summary="s", os="windows", format="iso", build=build)
    cache.keep(recipe, "f" * 64, fill, Quiet())
    (item,) = library.items()
    assert item.state == "its builder is not installed"
    prune.prune_all([recipe], Site())
    assert [image.key for image in cache.entries()] == ["f" * 64]
    prune.prune_all([], Site())
    assert cache.entries() == []
