"""The notes of create about a lab's images, before anything is touched."""

from __future__ import annotations

import plans
import pytest

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.operations import making


class Builder:
    def note(self, recipe: Recipe) -> str:
        return "" if recipe.name == "windows-rehearsal-2019" else "Scripts are played."


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("workers.os=windows-rehearsal", "workers.count=3"), ["Scripts are played."]),
        (("workers.os=windows-rehearsal-2019",), []),
        ((), []),
    ],
)
def test_stand_ins_are_noted_once(changes: tuple[str, ...], says: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans.make(plans.TCG, "1-1-1", *changes)
    monkeypatch.setattr(recipes, "builder", lambda _: Builder())
    assert making.rehearsal_notes(plan) == says
