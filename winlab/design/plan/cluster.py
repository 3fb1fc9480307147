"""The cluster's part of a lab's plan: which Kubernetes, where its API server is, how its pods are connected. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from winlab.design import cni
from winlab.design.catalog import recipes, versions
from winlab.design.cni import checks, compatible
from winlab.design.cni.model import NodeNetwork, PodNetwork
from winlab.design.cni.routed import Routed
from winlab.design.distribution import known
from winlab.design.distribution.model import Distribution
from winlab.design.plan import addresses
from winlab.design.plan.cluster_plan import ClusterPlan
from winlab.design.plan.node_plan import windows_releases
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.design.plan.existing import ForeignCluster
    from winlab.design.plan.model import Plan
    from winlab.design.plan.node_plan import NodePlan
    from winlab.design.spec.model import Spec

API_PORT = 6443
DOMAIN = "cluster.local"
ON_LINK = "host-gw"  # the profile for clusters whose nodes have routes to each other's pods in one network
WITH_WINDOWS, LINUX_ALONE = "calico-vxlan", "l3"  # the profiles used if neither spec nor image names one


def decide(spec: Spec, nodes: Sequence[NodePlan], router: str, external_cidr: str, mtu: int) -> ClusterPlan:
    """Decide everything about the cluster.

    :param router: the external address of the lab's router.
    :param mtu: the largest packet between nodes.
    :raises UsageError: the versions, the Windows release, the CNI profile or the networks don't fit together.
    """
    releases = windows_releases(nodes)
    profile = spec.network.cni or _suggested(nodes) or (WITH_WINDOWS if releases else LINUX_ALONE)
    distribution = known.BY_NAME[spec.kubernetes.distribution]
    wanted = spec.kubernetes.version or _newest(versions.get().minor, releases, profile, distribution)
    chosen = versions.get(wanted, allow_untested=spec.kubernetes.untested)
    _check_distribution(spec, distribution, chosen)
    for release in releases:
        compatible.check(chosen, release, None, profile)
    _check_rehearsal(nodes, profile)
    _check_support(nodes, profile)
    pods = cni.network(
        cni.get(profile),
        lab_cidr=spec.network.cidr,
        external_cidr=external_cidr,
        mtu=mtu,
        pod_cidr=spec.kubernetes.pod_cidr,
        service_cidr=spec.kubernetes.service_cidr,
        cluster_dns=addresses.inner(spec.kubernetes.service_cidr, 10),
        cluster_domain=DOMAIN,
    )
    checks.check(cni.get(profile), pods, [NodeNetwork(node.name, node.os, node.address) for node in nodes])
    controllers = [node for node in nodes if node.role == "controller"]
    balanced = len(controllers) > 1
    inner = addresses.inner(spec.network.cidr, addresses.CONTROL_PLANE) if balanced else controllers[0].address
    outer = router if balanced else controllers[0].floating
    every = [inner, outer, *(address for node in controllers for address in (node.address, node.floating))]
    return ClusterPlan(
        versions=chosen,
        components=cni.get(profile).known.of(chosen.minor) | distribution.known.of(chosen.minor),
        profile=profile,
        pod_cidr=pods.pod_cidr,
        service_cidr=pods.service_cidr,
        dns=pods.cluster_dns,
        domain=pods.cluster_domain,
        endpoint=f"{inner}:{API_PORT}",
        external=f"{outer}:{API_PORT}",
        names=tuple(dict.fromkeys(every)),
        source=spec.kubernetes.source,
        proxies=distribution.proxies,
        made_with=distribution.name,
    )


def _check_distribution(spec: Spec, distribution: Distribution, chosen: versions.Versions) -> None:
    """Check that the distribution can make a cluster as the spec asks for.

    :raises UsageError: it can't.
    """
    name = distribution.name
    if spec.kubernetes.source is not None and not distribution.in_pods:
        raise UsageError(
            f"{name} can't run a control plane from kubernetes.source.",
            why=f"Its control plane is in its own program, which winlab takes as {name} publishes it.",
            cure=f"Leave out kubernetes.source, or kubernetes.distribution. Your own build of {name} can replace the "
            "program on nodes that run: 'winlab push'.",
        )
    if why := distribution.why_not(chosen):
        able = [row.name for row in versions.load().combinations if not distribution.why_not(row)]
        raise UsageError(
            f"{name} can't make a cluster with Kubernetes {chosen.kubernetes}.",
            why=why,
            cure=f"Set kubernetes.version to one of {', '.join(able)}, or leave it out.",
        )


def version_note(spec: Spec, plan: Plan) -> str | None:
    """A note on Kubernetes' version if the spec names none and the workers need an older one; otherwise None."""
    if plan.kubernetes is None:
        return None
    chosen, profile, releases = plan.cluster.versions, plan.cluster.profile, windows_releases(plan.members)
    if spec.kubernetes.version is not None:
        return None
    if why := plan.cluster.distribution.why_not(versions.get()):
        return f"Using Kubernetes {chosen.kubernetes} (not {versions.get().kubernetes}). {why}"
    if not compatible.held_back(chosen, releases, profile):
        return None
    systems = " and ".join(f"Windows Server {release}" for release in releases)
    return (
        f"Using Kubernetes {chosen.kubernetes} (not {versions.get().kubernetes}), the newest known to work with "
        f"{profile} on {systems}."
    )


def _check_support(nodes: Sequence[NodePlan], profile: str) -> None:
    """Check that the profile is not known to fail on these releases of Windows, with any versions.

    :raises UsageError: it is known to fail.
    """
    for release in windows_releases(nodes):
        cni.require_support(cni.get(profile), release)


def decide_joined(
    spec: Spec, nodes: Sequence[NodePlan], external_cidr: str, mtu: int, foreign: ForeignCluster, cidr: str
) -> ClusterPlan:
    """What workers need to know about the external cluster that they join.

    :param mtu: the largest packet between nodes.
    :param cidr: the lab's inner network.
    :raises UsageError: no known versions fit the cluster's, or these nodes can't take part in its pod network.
    """
    if spec.kubernetes.distribution != known.DEFAULT.name:
        raise UsageError(
            f"kubernetes.distribution is {spec.kubernetes.distribution}, but the cluster exists already.",
            cure="Leave it out: nodes join the cluster as it is.",
        )
    profile = _joined_profile(spec, nodes, foreign)
    _check_joined_profile(profile, nodes, foreign)
    releases = windows_releases(nodes)
    wanted = spec.kubernetes.version or _not_newer(foreign, releases, profile)
    chosen = versions.get(wanted, allow_untested=spec.kubernetes.untested)
    for release in releases:
        compatible.check(chosen, release, None, profile)
    _check_support(nodes, profile)
    pods = cni.network(
        cni.get(profile),
        lab_cidr=cidr,
        external_cidr=external_cidr,
        mtu=mtu,
        pod_cidr=foreign.pod_cidr,
        service_cidr=foreign.service_cidr,
        cluster_dns=foreign.dns,
        cluster_domain=foreign.domain,
    )
    checks.check(cni.get(profile), pods, [NodeNetwork(node.name, node.os, node.address) for node in nodes])
    return ClusterPlan(
        versions=chosen,
        components=cni.get(profile).known.of(chosen.minor),
        profile=profile,
        pod_cidr=pods.pod_cidr,
        service_cidr=pods.service_cidr,
        dns=pods.cluster_dns,
        domain=pods.cluster_domain,
        endpoint=foreign.endpoint,
        external=foreign.external,
        names=(),
        source=spec.kubernetes.source,
        proxies=foreign.proxies,
        half=bool(releases) and not foreign.own_half and cni.get(profile).has_half,
    )


def _newest(
    minor: int, releases: Sequence[str], profile: str, distribution: Distribution = known.DEFAULT
) -> str | None:
    """The name of the newest combination up to 1.*minor* that the distribution has, and that works with the releases
    of Windows and the profile."""
    row = compatible.newest(minor, releases, profile)
    while row is not None and distribution.why_not(row):
        row = compatible.newest(row.minor - 1, releases, profile)
    return None if row is None else row.name


def _not_newer(foreign: ForeignCluster, releases: Sequence[str], profile: str) -> str:
    """The newest known version that is not newer than the API server, and that works with what the workers run.

    :raises UsageError: the API server is older than all.
    """
    if (name := _newest(foreign.minor, releases, profile)) is not None:
        return name
    raise UsageError(
        f"The cluster's Kubernetes {foreign.version} is older than all that winlab knows.",
        why=f"Known are {', '.join(versions.names())}, and a kubelet must not be newer than its API server.",
        cure=f"To try it anyway: --set kubernetes.version={foreign.version} --set kubernetes.untested=true.",
    )


def _joined_profile(spec: Spec, nodes: Sequence[NodePlan], foreign: ForeignCluster) -> str:
    """The cluster's own profile; if winlab does not know it, the requested one or the one that the image needs."""
    asked = spec.network.cni
    if foreign.cni is not None and asked not in (None, foreign.cni):
        raise UsageError(
            f"The pods of that cluster are connected by {foreign.cni}, not by {asked}.",
            why=f"It has {foreign.cni_note}.",
            cure="Leave network.cni out.",
        )
    suggested = _suggested(nodes) if windows_releases(nodes) else cni.ELSEWHERE.name
    ours = windows_releases(nodes) or foreign.in_agents  # nothing of the cluster connects their pods
    if ours and foreign.on_link and spec.network.attachment == "attached":
        suggested = ON_LINK
    profile = foreign.cni or asked or suggested
    if profile is None:
        raise UsageError(
            "winlab does not know how that cluster connects its pods with Windows nodes.",
            why=f"What it sees: {foreign.cni_note}.",
            cure="Choose what the nodes get with --set network.cni=...; 'winlab join' changes nothing of the "
            "cluster's own network. docs/cluster.md has the details.",
        )
    _check_rehearsal(nodes, profile)
    return profile


def _check_joined_profile(profile: str, nodes: Sequence[NodePlan], foreign: ForeignCluster) -> None:
    """Check that the cluster gives its nodes what the profile connects pods by.

    :raises UsageError: it does not.
    """
    routed, backend = isinstance(cni.get(profile), Routed), cni.get(profile).backend
    if backend is not None and foreign.overlays and foreign.overlays != {backend}:
        listed = sorted(f"{name}, VNI {'unknown' if vni is None else vni}" for name, vni in foreign.overlays)
        raise UsageError(
            f"The nodes of that cluster don't have the network that {profile} connects.",
            why=f"Theirs is flannel with {' and '.join(listed)}; Windows needs {backend[0]}, VNI {backend[1]}.",
            cure="'winlab join --check' prints what to change in the cluster.",
        )
    if foreign.lacks and profile == foreign.cni and any(node.system.hns for node in nodes):
        raise UsageError(
            "The network of that cluster has no place for Windows nodes yet.",
            why=" ".join(one.says for one in foreign.lacks),
            cure="\n".join(one.cure for one in foreign.lacks),
        )
    if routed and not foreign.allocates:
        raise UsageError(
            f"The cluster gives its nodes no pod networks, which {profile} needs.",
            why=f"The controller manager of {foreign.kind} runs without --allocate-node-cidrs.",
            cure="Apply Calico with VXLAN in the cluster and leave network.cni out; or start its controller manager "
            f"with --allocate-node-cidrs=true --cluster-cidr={foreign.pod_cidr}.",
        )
    if not routed and foreign.in_agents and any(not node.system.hns for node in nodes):
        raise UsageError(
            "Nothing in that cluster would connect the pods of a Linux node of this lab.",
            why=f"The agents of {foreign.kind} do that on its own nodes, and it has no DaemonSet for it.",
            cure="Add --set network.cni=l3, and set routes to the nodes' pods; or leave Linux nodes to its own agent.",
        )


def _suggested(nodes: Sequence[NodePlan]) -> str | None:
    """The profile that a node's image requires; None if none does."""
    asked = (recipes.get(node.image).cni for node in nodes)
    return next((name for name in asked if name is not None), None)


def _check_rehearsal(nodes: Sequence[NodePlan], profile: str) -> None:
    """Refuse a profile that the stand-in can't take part in: its nodes would wait forever."""
    if any(recipes.get(node.image).stand_in for node in nodes):
        cni.require_rehearsal(cni.get(profile))


def network(plan: Plan) -> PodNetwork:
    """The network of a lab's pods."""
    return cni.network(
        cni.get(plan.cluster.profile),
        lab_cidr=plan.network.cidr,
        external_cidr=plan.network.external_cidr,
        mtu=plan.network.mtu,
        pod_cidr=plan.cluster.pod_cidr,
        service_cidr=plan.cluster.service_cidr,
        cluster_dns=plan.cluster.dns,
        cluster_domain=plan.cluster.domain,
    )
