"""What the shell completes: names of labs, nodes, specs and images. Nothing here raises."""

from __future__ import annotations

import typer

from winlab import settings


def complete_labs() -> list[str]:
    """Names of labs."""
    from winlab import Lab
    from winlab.design.plan.lab_name import GOLDEN

    return [name for name in Lab.known_names() if not name.startswith(GOLDEN)]


def complete_nodes(ctx: typer.Context, incomplete: str = "") -> list[str]:
    """Names of the nodes of the lab that the command line names so far; after ``LAB/`` of that lab."""
    from winlab import Lab
    from winlab.errors import WinlabError

    lab, slash, _ = incomplete.rpartition("/")
    try:
        machines = Lab(lab or ctx.params.get("lab") or settings.DEFAULT_LAB).machines()
    except WinlabError:
        return []
    return [f"{lab}{slash}{machine.tag.node}" for machine in machines]


def complete_places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Nodes with a colon, for ``cp``; the shell completes files itself where nothing is returned."""
    return (
        [f"{node}:" for node in complete_nodes(ctx, incomplete) if f"{node}:".startswith(incomplete)]
        if incomplete
        else []
    )


def complete_specs(incomplete: str) -> list[str]:
    """Names in specs/, and YAML files in the current folder."""
    from pathlib import Path

    from winlab.design import spec

    files = [str(path) for path in Path().glob(f"{incomplete}*.yaml")]
    return [name for name in [*spec.names(), *files] if name.startswith(incomplete)]


def complete_images() -> list[str]:
    """Names of images."""
    from winlab.design.catalog import recipes

    return list(recipes.names())


def complete_systems() -> list[str]:
    """Names of images that nodes can be made from."""
    from winlab.design.catalog import recipes

    return list(recipes.systems())


def complete_pools(ctx: typer.Context) -> list[str]:
    """Names of the pools of the lab that the command line names so far."""
    from winlab import Lab
    from winlab.errors import WinlabError

    try:
        spec = Lab(ctx.params.get("lab") or settings.DEFAULT_LAB).spec()
    except WinlabError:
        return []
    return list(dict.fromkeys([*(pool.name for pool in spec.workers), "linux"]))


def complete_faults(ctx: typer.Context) -> list[str]:
    """Identifiers of the faults of the lab that the command line names so far, and its nodes."""
    from winlab import Lab
    from winlab.errors import WinlabError

    try:
        faults = [one.id for one in Lab(ctx.params.get("lab") or settings.DEFAULT_LAB).faults()]
    except WinlabError:
        faults = []
    return [*faults, *complete_nodes(ctx)]


def complete_hypervisors() -> list[str]:
    """Names of hypervisors."""
    from winlab.errors import WinlabError
    from winlab.hosts import Hosts

    try:
        return Hosts().names()
    except WinlabError:
        return []


def complete_snapshots(ctx: typer.Context) -> list[str]:
    """Snapshots: as NAME those of the lab that the command line names so far, as LAB@NAME all."""
    from winlab import snapshots
    from winlab.errors import WinlabError

    lab = ctx.params.get("lab") or settings.DEFAULT_LAB
    try:
        found = snapshots.ids()
    except WinlabError:
        return []
    return [*(one.name for one in found if one.lab == lab), *map(str, found)]


def complete_origins() -> list[str]:
    """What can be copied: snapshots as LAB@NAME, and labs."""
    from winlab import snapshots
    from winlab.errors import WinlabError

    try:
        return [*map(str, snapshots.ids()), *complete_labs()]
    except WinlabError:
        return complete_labs()
