"""Which external clusters there are, and what one needs before it can have workers. Nothing is made or changed."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from winlab.adapters.kube import discovery, endpoint, identity, probe
from winlab.design.catalog import recipes
from winlab.design.clusters import known, verdict
from winlab.design.clusters.model import Finding, Reach, Seen
from winlab.design.plan import addresses
from winlab.design.plan.facts import HostFacts
from winlab.design.spec.model import Spec
from winlab.errors import WinlabError
from winlab.events import Listener, Progress
from winlab.operations import attachment, join, planning
from winlab.operations.carry_out import one_step
from winlab.site import Site
from winlab.steps.sources import Origin

LOOPBACK = ("localhost", "127.", "0.0.0.0", "[::1]", "::1")  # noqa: S104 - what k3d writes


@dataclass(frozen=True)
class ClusterVerdict:
    """What a cluster is, and what each row says of it."""

    kind: str
    version: str
    rows: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        """Whether no worker can join."""
        return bool(verdict.refusals(self.rows))


@dataclass(frozen=True)
class Nearby:
    """A cluster that this host shows, and what clusters of its distribution need.

    :param use: the options of ``winlab join`` for it, or the command that prints a kubeconfig.
    """

    name: str
    distribution: str
    where: str
    use: str
    needs: str
    note: str


def nearby() -> list[Nearby]:
    """The clusters that this host shows. No context is used, and no program of a kubeconfig runs."""
    needs = {kind.name: kind.needs for kind in known.every()}
    return [
        Nearby(one.name, one.kind, one.where, one.use, needs.get(one.kind, ""), one.note) for one in discovery.find()
    ]


def check(
    spec: Spec,
    lab: str,
    site: Site,
    tell: Listener,
    config: Path,
    *,
    context: str = "",
    server: str = "",
    origin: Origin | None = None,
) -> ClusterVerdict:
    """Look at a cluster, and say what workers of this spec will have there. Nothing is touched.

    :param config: a kubeconfig of one of the cluster's administrators; *context*: as :func:`join.plan` takes it.
    :param server: ADDRESS:PORT of the API server, if it is neither in the kubeconfig nor published.
    :raises WinlabError: the cluster can't be inspected.
    """
    admin = join.chosen(config, context, lab)

    def look(progress: Progress) -> tuple[Seen, str]:
        with join.asking(site.folder(lab), admin, spec, origin or Origin(), progress) as kubectl:
            return probe.look(kubectl), identity.authorities(kubectl).server

    seen, ca = one_step("look at the cluster", look, tell, usual=10)
    named = server or join.own_server(admin)
    candidates = (one for one in (named, *seen.endpoints) if one and not one.startswith(LOOPBACK))
    reach = one_step("try the API server's addresses", partial(_tried, candidates, ca, spec), tell, usual=2)
    nodes = [node.address for node in seen.nodes if node.address]
    pods = [node.pod_cidr for node in seen.nodes if "." in node.pod_cidr]
    own = partial(attachment.ends, spec, lab, _facts(site), _router(site, lab, spec), nodes, pods)
    ends = one_step("try the cluster's nodes", lambda _: own(), tell, usual=2)
    windows = any(recipes.get(pool.os).system.hns for pool in spec.pools if pool.count)
    rows = verdict.findings(seen, ends, reach, windows=windows)
    return ClusterVerdict(known.of(seen).name, seen.version, tuple(rows))


def _tried(candidates: Iterable[str], ca: str, spec: Spec, progress: Progress) -> list[Reach]:
    found = []
    for address in dict.fromkeys(candidates):
        progress.say(f"connecting to {address}")
        try:
            here = endpoint.connect(address, ca)
            found.append(Reach(address, here=here and spec.network.reach != "all"))
        except ssl.SSLError as error:
            found.append(Reach(address, f"{error}. {endpoint.NAMELESS}"))
        except (OSError, ValueError) as error:
            found.append(Reach(address, str(error)))
    return found


def _facts(site: Site) -> HostFacts:
    try:
        return site.host_facts
    except WinlabError:  # the host is not set up yet
        return HostFacts()


def _router(site: Site, lab: str, spec: Spec) -> str:
    """The address of the lab's router that the cluster's nodes see, as it will be."""
    try:
        facts = site.host_facts
        taken = planning.taken_blocks(site, lab, facts)
        outside = addresses.external_block(facts.external_cidr, lab, 1, spec.network.floating_block, taken)
    except WinlabError:  # the host is not set up yet
        return "the lab's router, which 'winlab join' prints"
    return outside[0]
