"""Consent to the terms of Microsoft's evaluation media: only a person can give it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from winlab.design.plan.model import Plan
    from winlab.design.spec.model import Spec

TERMS = (
    "Evaluation media of Windows Server are free for 180 days, for evaluation alone; the terms stand at "
    "https://www.microsoft.com/evalcenter."
)
AcceptEula = Annotated[
    bool, typer.Option("--accept-eula", help="You have read Microsoft's terms for evaluations, and accept them.")
]


def require(given: bool) -> None:
    """See that the person has accepted Microsoft's terms; on a terminal they are asked for once.

    :raises UsageError: they have not, or there is nobody to ask.
    """
    from winlab.errors import UsageError

    if not _consents(given):
        raise UsageError(
            "Microsoft's evaluation media come with terms that only you can accept.",
            why=TERMS,
            cure="Say --accept-eula, or get the ISO yourself and give it with 'winlab image add NAME --iso PATH'.",
        )


def to_fetch(spec: Spec, given: bool) -> bool:
    """Whether the medium that the spec lacks may be fetched; False where none is lacking."""
    from winlab.design.catalog import recipes
    from winlab.supply.images import windows_media

    recipe = recipes.get(spec.workers.os)
    if spec.workers.count == 0 or spec.workers.media is not None or not recipe.evaluations:
        return False
    return windows_media.find(recipe) is None and _consents(given)


def assumed(plan: Plan) -> str | None:
    """What to say of a plan whose media nobody has seen; None if they are there."""
    from winlab.design.catalog import recipes
    from winlab.supply.images import windows_media

    for node in plan.nodes:
        recipe = recipes.get(node.image)
        if node.windows is not None and not node.windows.own_medium and recipe.evaluations:
            if windows_media.find(recipe) is not None:
                return None
            return (
                f"There are no media for {recipe.name}: Microsoft's {recipe.evaluations[0].file} is taken for granted."
            )
    return None


def _consents(given: bool) -> bool:
    note = _note()
    if not given and not note.exists() and sys.stdin.isatty() and sys.stderr.isatty():
        given = typer.confirm(f"{TERMS} Do you accept them?", err=True)
    if given:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    return note.exists()


def _note() -> Path:
    from winlab import settings

    return settings.state_dir() / "evaluation-terms-accepted"
