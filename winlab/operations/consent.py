"""Consent to the terms of Microsoft's evaluation media: whether it is needed, and whether it was given.

It is given once per account, and remembered in the state folder.
"""

from __future__ import annotations

from pathlib import Path

from winlab import files
from winlab.design.catalog import recipes
from winlab.design.plan.model import Plan
from winlab.errors import UsageError
from winlab.lab_folder import changing
from winlab.site import Site
from winlab.supply.images import windows_media

TERMS = (
    "Evaluation media of Windows Server are free for 180 days, for evaluation only; the terms are at "
    "https://www.microsoft.com/evalcenter."
)


def is_needed(plan: Plan) -> bool:
    """Whether a medium is missing that could be downloaded if its terms were accepted."""
    return any(windows_media.find(recipes.get(image)) is None for image in _evaluated(plan))


def assumed(plan: Plan) -> str | None:
    """A note about evaluation media that the plan assumes and no one has supplied yet; None if all are available."""
    missing = [recipe for recipe in map(recipes.get, _evaluated(plan)) if windows_media.find(recipe) is None]
    lines = [
        f"There is no ISO for {recipe.name} here yet. Microsoft's evaluation {recipe.evaluations[0].file} is assumed."
        for recipe in missing
    ]
    return "\n".join(lines) or None


def _evaluated(plan: Plan) -> list[str]:
    """The images of nodes that are installed from an evaluation medium, unless another one is cached."""
    images = [node.image for node in plan.windows_nodes() if not node.windows.own_medium]
    return [image for image in dict.fromkeys(images) if recipes.get(image).evaluations]


def terms(plan: Plan, site: Site) -> str | None:
    """The terms that the user must accept before a missing medium is downloaded; None: there is nothing to accept."""
    return TERMS if is_needed(plan) and not is_given(site) else None


def is_given(site: Site) -> bool:
    """Whether the terms were accepted in this account.

    :raises AccessError: the state folder can't be used.
    """
    note = _note(site)
    with changing(note):
        return note.exists()


def give(site: Site) -> None:
    """Remember that the terms were accepted. Only a person can accept them.

    :raises AccessError: the state folder can't be used.
    :raises HostError: there is no space.
    """
    note = _note(site)
    with changing(note):
        files.make_parents(note)
        note.touch()


def settle(plan: Plan, site: Site, *, accepted: bool, offline: bool = False) -> bool:
    """Whether missing media may be downloaded.

    :param accepted: the user has accepted the terms now; this is remembered.
    :param offline: everything must come from a bundle.
    """
    if accepted:
        give(site)
    return not offline and is_needed(plan) and is_given(site)


def require(site: Site, *, accepted: bool) -> None:
    """Make sure that the terms were accepted, now or before.

    :raises UsageError: they were not.
    """
    if accepted:
        give(site)
    if not is_given(site):
        raise UsageError(
            "Microsoft's evaluation media come with terms that only you can accept.",
            why=TERMS,
            cure="Pass --accept-eula, or get the ISO yourself and give it with 'winlab image add NAME --iso PATH'.",
        )


def _note(site: Site) -> Path:
    return site.places.state / "evaluation-terms-accepted"
