"""The add-ons' part of a lab's plan. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from winlab.design import addon
from winlab.design.addon import AddonSettings, Object, PlannedLab
from winlab.design.plan import node_files
from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.spec import addon_pools
from winlab.errors import UsageError


def require_none(wanted: Collection[str]) -> None:
    """Check that a lab which joins an external cluster turns none on.

    :raises UsageError: it does.
    """
    if wanted:
        raise UsageError(
            "A lab that joins an external cluster has no add-ons.",
            why="They are installed into the lab's own cluster.",
            cure="Leave out 'addons', and install them the way that cluster installs its own.",
        )


def decide(wanted: Mapping[str, AddonSettings], lab: PlannedLab, minor: int) -> tuple[AddonPlan, ...]:
    """Decide everything about the add-ons of a lab.

    :param lab: with the machines that they request.
    :param minor: of the lab's Kubernetes: 36 for 1.36.
    :raises UsageError: the lab can't have one of them; the message names all reasons.
    """
    by_addon = {name: addon.registry()[name].problems(settings, lab) for name, settings in wanted.items()}
    every = [(name, problem) for name, problems in by_addon.items() for problem in problems]
    if every:
        raise UsageError(
            f"The lab can't have these add-ons: {', '.join(dict.fromkeys(name for name, _ in every))}.",
            why=" ".join(problem.what for _, problem in every),
            cure=" ".join(dict.fromkeys(problem.cure for _, problem in every)),
        )
    rows = tuple(_decided(name, settings, lab, minor) for name, settings in wanted.items())
    node_files.check(rows, lab)
    return rows


def manifests(row: AddonPlan, lab: PlannedLab) -> list[Object]:
    """The objects to apply for one add-on of a lab."""
    definition = addon.registry()[row.name]
    return definition.manifests(definition.Settings.model_validate(row.settings), lab, row.versions)


def _decided(name: str, settings: AddonSettings, lab: PlannedLab, minor: int) -> AddonPlan:
    definition = addon.registry()[name]
    versions = definition.load().of(minor)
    return AddonPlan(
        name=name,
        settings=settings.model_dump(mode="json"),
        versions=versions,
        artifacts=tuple(definition.required(settings, lab, versions)),
        pools=tuple(pool.name for _, pool in addon_pools.each(addon_pools.pools({name: settings})) if pool.count),
    )
