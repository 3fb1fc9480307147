"""Destroy a lab, found by its tags alone, so that another account's lab or a half-made one can be removed, too."""

from __future__ import annotations

from typing import Literal

from winlab import stopping
from winlab.adapters import traces
from winlab.adapters.kube import kubeconfig
from winlab.errors import WinlabError, together
from winlab.events import Listener, Note, StepDone
from winlab.operations import absent, attachment, golden, join, owner, protect
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.snapshot import delete as deletion
from winlab.site import Site


def destroy(lab: str, site: Site, tell: Listener, *, anyone: bool = False) -> list[str]:
    """Remove every trace of the lab, by its tags alone; safe to repeat. Images stay in the pool.

    What it has, or may have, on a hypervisor that does not answer is remembered, and removed when that answers again
    (:mod:`winlab.operations.remains`).

    :param anyone: even if another user made it.
    :returns: what was removed, as text; empty if there was nothing.
    :raises ConflictError: another user made it, or it is protected; nothing was touched.
    :raises HostError: it may have machines on hypervisors that are not known, because OVN does not answer; the rest
        was removed.
    :raises Stopped: the work was asked to stop; the rest is still there.
    """
    removed: list[str] = []

    def work(under: Underway) -> None:
        folder, hosts = under.folder, under.hypervisors
        record = under.tell if folder.has(folder.journal) else tell

        def gone(kind: Literal["node", "domain", "volume", "network", "context"], name: str) -> None:
            removed.append(f"{kind} {name}")
            record(StepDone(lab=lab, step=f"remove {kind} {name}"))
            stopping.check()

        kept: dict[tuple[str, str], list[str]] = {}

        def left_alone(kind: traces.Kind, name: str, why: str) -> None:
            kept.setdefault((kind, why), []).append(name)

        there = hosts.machines(lab)
        # first, because only the machines show which nodes are the lab's
        removed_nodes, left = join.leave(folder, [machine.tag for machine in there])
        for name in removed_nodes:
            gone("node", name)
        if left:
            record(Note(lab=lab, text=left))
        if commands := attachment.leave([machine.tag for machine in there], site.host_facts):
            record(Note(lab=lab, text=f"This host still routes its network. To end that: {'; '.join(commands)}"))
        problems = traces.remove(lab, hosts, site.overlay, gone, left_alone)
        for (kind, why), names in kept.items():
            what = f"The {kind} '{names[0]}' was" if len(names) == 1 else f"{len(names)} {kind}s were"
            record(Note(lab=lab, text=f"{what} left alone: {why}."))
        try:
            if kubeconfig.forget(lab):
                gone("context", kubeconfig.name(lab))
        except WinlabError as error:
            problems.append(error)
        removed.extend(under.cleaned)
        problems += absent.leave(lab, site, hosts, record)
        try:
            deletion.tidy(lab, hosts, record)
        except WinlabError as error:
            problems.append(error)
        if problems:
            raise together(problems)  # the folder stays: a retry needs what it records
        had_secrets = any(path.name != "lock" for path in folder.path.iterdir())  # earlier versions kept theirs there
        folder.remove()
        if had_secrets:
            removed.append(f"folder {folder.path}")
            tell(StepDone(lab=lab, step=f"remove folder {folder.path}"))  # the journal was in it

    if not anyone:
        _refuse_others(lab, site)
    with site.hypervisors() as there:
        protect.refuse(lab, there)
    golden.abandon(lab, site, lambda other: removed.extend(destroy(other, site, tell, anyone=anyone)))
    carry_out(Job(lab, work, moves=True), site, tell)
    return removed


def _refuse_others(lab: str, site: Site) -> None:
    """Check that no other user made the lab: everyone's first lab has the same name.

    :raises ConflictError: one did.
    """
    with site.hypervisors() as hosts:
        if others := traces.others(lab, hosts, site.overlay):
            raise owner.foreign(lab, others, "To remove this one")
