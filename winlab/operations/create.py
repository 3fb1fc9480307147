"""Create a lab, or resume one: every check runs before anything is touched, then the steps."""

from __future__ import annotations

from pathlib import Path

from winlab.events import Listener
from winlab.operations import making
from winlab.operations.carry_out import carry_out
from winlab.operations.making import Until
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps.sources import Origin


def create(
    proposal: Proposal,
    site: Site,
    tell: Listener,
    *,
    until: Until = "cluster",
    origin: Origin | None = None,
    locked: Path | None = None,
    consent: bool = False,
) -> None:
    """Create the lab, or resume it; what exists is not changed.

    :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
    :param origin: where Kubernetes' artifacts and downloaded images come from; by default whatever is available, and
        the images' own sites.
    :param locked: a lock file; anything that differs from it is refused.
    :param consent: the user accepted the terms of Microsoft's evaluation media; missing media may be downloaded.
    :raises NotFoundError: there is no source for what the lab needs; nothing was touched.
    :raises ConflictError: a lab of that name was made from another plan or is being changed, or another winlab is
        working on it. Or a domain that is not the lab's has a machine's name.
    :raises WinlabError: a step failed.
    """
    made = making.prepare("create", proposal, site, tell, until=until, origin=origin, consent=consent, locked=locked)
    carry_out(made.new_lab(), site, tell)
