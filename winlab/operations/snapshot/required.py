"""What must be true before copies are made from a snapshot: their names are free, and they can be as requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from winlab.adapters import traces
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError
from winlab.site import Site
from winlab.snapshots import Snapshot

SHOWN = 5  # fields of a spec that differ
COPYING = "copying"  # a file in the lab's folder: a command is making it from the snapshot that the file names


def require_free(labs: Iterable[str], origin: str, site: Site, hosts: Hypervisors) -> None:
    """Check that copies of the lab *origin* can have these names. Copies that were interrupted are made again.

    :raises UsageError: one can't be the name of a lab.
    :raises ConflictError: there is a lab of one of the names.
    """
    folders = [site.folder(check_lab_name(lab)) for lab in labs]
    begun = {folder.lab for folder in folders if folder.has(folder.path / COPYING)}
    there = traces.labs(hosts, site.overlay)
    for lab in (folder.lab for folder in folders if folder.lab in there and folder.lab not in begun):
        raise ConflictError(
            f"There is already a lab '{lab}'.",
            cure="Choose another name; 'winlab reset' puts the lab itself back."
            if lab == origin
            else f"Choose another name, or run 'winlab destroy --lab {lab}' first.",
        )


def require_renewable(snapshot: Snapshot) -> None:
    """Check that a copy's machines can be given their own credentials.

    :raises ConflictError: they can't.
    """
    plan = snapshot.plan
    if plan.kubernetes is not None and not plan.cluster.distribution.copies:
        raise ConflictError(
            f"A copy of '{snapshot.id}' can't get its own credentials.",
            why=f"Its cluster was made by {plan.cluster.distribution.name}, whose administrator can't lose its rights: "
            "the kubeconfig of the lab would be an administrator's of the copy, too.",
            cure="Leave --fresh-credentials out if that is acceptable.",
        )
    if not snapshot.memory:
        raise ConflictError(
            f"A copy of '{snapshot.id}' can't get its own credentials: it is off.",
            why="The snapshot has disks alone. Machines get new credentials while they run.",
            cure="Save the lab while it runs, and copy that; or leave --fresh-credentials out.",
        )


def require_spec(snapshot: Snapshot, spec: Spec) -> None:
    """Check that a spec is the one that a snapshot's lab was made from.

    :raises ConflictError: it is another one; the fields that differ are named.
    """
    had, given = snapshot.spec.model_dump(mode="json"), spec.model_dump(mode="json")
    if differing := sorted(_differing(had, given)):
        raise ConflictError(
            f"The snapshot '{snapshot.id}' was made from another spec.",
            why=f"Different are: {', '.join(differing[:SHOWN])}.",
            cure="Leave the spec out: the copy has the snapshot's. Or make the lab without --from.",
        )


def _differing(had: object, given: object, path: str = "") -> Iterator[str]:
    if isinstance(had, dict) and isinstance(given, dict):
        for key in had.keys() | given.keys():
            yield from _differing(had.get(key), given.get(key), f"{path}.{key}" if path else str(key))
    elif had != given:
        yield path  # without the values: one may be a product key
