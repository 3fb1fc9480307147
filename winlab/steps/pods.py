"""Steps that connect the pods of all nodes: the CNI profile's objects in the API server, and routes.

Each node's own part is in linux/node.py and windows/node.py.
"""

from __future__ import annotations

from functools import partial

import yaml

from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.design import cni
from winlab.design.cni.model import Patch
from winlab.design.plan.cluster import network
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import again, controllers, pod_network
from winlab.steps.apply import apply
from winlab.steps.sources import Supply
from winlab.steps.states import API, CNI, MEMBER, OBJECTS, ROUTES

SILENCE = 300.0  # seconds on hardware without anything new, for objects that the cluster's controllers make
KINDS_SILENCE = 120.0  # seconds on hardware until the API server serves the kinds that were defined
ESTABLISHED = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Established")].status}{"\n"}{end}'


def steps(run: Run, supply: Supply) -> list[Step]:
    """The profile's objects and the routes to pods."""
    return [_objects(run, supply), _routes(run)]


def _objects(run: Run, supply: Supply) -> Step:
    plan = run.plan
    profile = cni.get(plan.cluster.profile)

    published = [] if plan.joins else profile.published(plan.cluster.releases)
    patches = [] if plan.joins else profile.patches(nodes.parts(plan))
    objects = nodes.objects(plan)

    def work(progress: Progress) -> None:
        kubectl = Kubectl.of(run.folder)
        for manifest in published:
            progress.say(str(manifest))
            text = supply.obtain_intact([manifest], progress)[0].path.read_text(encoding="utf-8")
            apply(kubectl, [row for row in yaml.safe_load_all(text) if row], run, progress)
        if published:  # the profile's own objects may be of kinds that these define
            _await_kinds(run, kubectl, progress)
        progress.say("runtime classes and the objects of the CNI profile")
        apply(kubectl, objects, run, progress)
        for patch in patches:
            _patch(run, kubectl, patch, progress)

    def done() -> bool:
        if published or patches:
            return False  # server-side apply changes only what differs
        return not objects or Kubectl.of(run.folder).same(objects)

    return Step(OBJECTS(run.lab), work, done, [API(run.lab)], usual=run.pace.usual(4))


def _await_kinds(run: Run, kubectl: Kubectl, progress: Progress) -> None:
    """Wait until the API server serves every kind that was defined.

    :raises ClusterError: it does not.
    """
    missing: frozenset[str] = frozenset()

    def look() -> Met[None] | Waiting:
        nonlocal missing
        try:
            rows = kubectl.run("get", "customresourcedefinitions", f"--output=jsonpath={ESTABLISHED}").splitlines()
        except ClusterError as error:  # the API server is busy or restarting: ask it again
            return Waiting(f"waiting for the API server to serve the published kinds: {error.what}", missing)
        missing = frozenset(name for name, _, status in (row.partition("=") for row in rows) if status != "True")
        if not missing:
            return Met(None)
        return Waiting(f"waiting for the API server to serve the published kinds: {len(missing)} left", missing)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            "The API server does not serve all kinds that were defined.",
            why=f"Missing: {', '.join(sorted(missing))}." if missing else "It does not answer.",
            evidence="winlab kubectl -- describe customresourcedefinitions",
        )

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(KINDS_SILENCE))


def _patch(run: Run, kubectl: Kubectl, patch: Patch, progress: Progress) -> None:
    """Apply a patch once its object exists: a controller in the cluster makes it, and that controller's pods may have
    to start first.

    :raises ClusterError: the object does not appear, or the API server refuses the patch.
    """
    body = yaml.safe_dump(patch.body)
    refusal = ClusterError(f"There is no {patch.resource} {patch.name}.")

    def look() -> Met[None] | Waiting:
        nonlocal refusal
        try:
            kubectl.run("patch", patch.resource, patch.name, "--type=merge", "--patch-file=/dev/stdin", stdin=body)
        except ClusterError as error:
            refusal = error
            return Waiting(f"waiting for {patch.resource} {patch.name}", diagnose.pods(kubectl))
        return Met(None)

    controllers.until(run, look, progress, lambda _: refusal, stall=run.pace.usual(SILENCE))


def _routes(run: Run) -> Step:
    """Routes to the nodes' pods: on the lab's router (l3) or on the nodes (host-gw), as the profile says."""
    profile = cni.get(run.plan.cluster.profile)
    masquerade = profile.masquerade(network(run.plan))

    def wanted() -> dict[str, str]:
        return pod_network.router_routes(run, pod_network.shares(run))

    def work(progress: Progress) -> None:
        for node in run.plan.members:
            pod_network.await_share(run, node, progress)
        progress.say("routes to the pods of each node")
        with run.overlay() as northbound:
            northbound.set_pod_routes(run.plan.lab, wanted())
        every = [*pod_network.shares(run), *pod_network.others(run)]
        for node in run.plan.members:
            if run.plan.network.mode == "attached":
                pod_network.announce(run, node)
            if (call := nodes.routes(run.plan, node, every)) is not None:
                # again: a network that was just recreated may cut the connection again
                with run.node(node) as there:
                    again.run(there, call, progress, partial(domains.is_running, run.on(node).conn, node))

    def done() -> bool:
        if masquerade is not None:
            return False  # each node checks its own routes itself
        try:
            with run.overlay() as northbound:
                routes = northbound.pod_routes(run.plan.lab)
            return routes == wanted() and len(pod_network.shares(run)) == len(run.plan.members)
        except WinlabError:
            return False

    # nodes with routes of their own come after CNI: Windows recreates its adapter together with its network
    kind = MEMBER if masquerade is None else CNI
    return Step(ROUTES(run.lab), work, done, [kind(run.lab, node.name) for node in run.plan.members], usual=2)
