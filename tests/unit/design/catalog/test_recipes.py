"""The image recipes that ship."""

from __future__ import annotations

import pytest

from winlab.design.catalog import recipes
from winlab.errors import HostError

PUBLISHED = [name for name in recipes.names() if recipes.get(name).download]


def test_published_recipes_exist() -> None:
    assert {"debian-12-cloud", "debian-13-cloud", "ubuntu-22.04", "ubuntu-24.04"} <= set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_addresses_are_dated(name: str) -> None:
    """A moving address ('latest', 'current') would not have the digest for long."""
    download = recipes.get(name).download
    assert download is not None
    assert download.url.startswith("https://")
    assert not {"latest", "current", "release", "daily"} & set(download.url.split("/"))


@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.get(name).build])
def test_builders_exist(name: str) -> None:
    recipe = recipes.get(name)
    module = recipes.builder(recipe)
    assert callable(module.build)
    assert len(module.fingerprint(recipe)) == 64


def test_each_release_of_windows_has_a_stand_in() -> None:
    found = {recipes.get(name).windows: name for name in recipes.names() if recipes.get(name).stand_in}
    assert found == {"2022": "windows-rehearsal", "2019": "windows-rehearsal-2019", "2025": "windows-rehearsal-2025"}
    assert set(found) == {recipes.get(name).windows for name in recipes.names() if recipes.get(name).evaluations}


def test_a_missing_builder_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "entry_points", lambda **_: ())
    recipe = recipes.get("windows-rehearsal")
    assert not recipes.has_builder(recipe)
    assert recipes.has_builder(recipes.get("debian-13-cloud"))
    with pytest.raises(HostError, match="builder of image 'windows-rehearsal' is not installed") as caught:
        recipes.builder(recipe)
    assert "entry point 'standin'" in caught.value.why
    assert caught.value.cure == "Install it: pip install 'winlab[rehearse]'."
