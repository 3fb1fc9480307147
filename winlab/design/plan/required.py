"""Which artifacts a lab needs, according to its plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.design import addon, cni, system
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Program
from winlab.design.catalog.builds import GoBuild
from winlab.design.catalog.pins import Pins
from winlab.design.catalog.releases import Releases
from winlab.design.catalog.versions import Versions
from winlab.design.plan.model import Plan
from winlab.design.system import LINUX, SYSTEMS, System, SystemName
from winlab.design.system.windows import SHIM

# A node becomes Ready without them: crictl is for users; the shim has no source in Go
OPTIONAL = frozenset({"crictl", SHIM})
REGISTRY = "registry.k8s.io"


@dataclass(frozen=True)
class RequiredPayload:
    """The content of one system's payload CD; ``programs`` go to the nodes' search path, ``plugins`` are CNI's."""

    os: SystemName
    programs: tuple[Program, ...]
    plugins: tuple[Program, ...]
    images: tuple[ContainerImage, ...]

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """All of them."""
        return (*self.programs, *self.plugins, *self.images)


def payloads(plan: Plan) -> list[RequiredPayload]:
    """One payload for each operating system whose nodes get one; without members it has only winlab's scripts."""
    members = {node.system for node in plan.members}
    return [
        RequiredPayload(system.name, _programs(plan, system), _plugins(plan, system), _images(plan, system))
        if system in members
        else RequiredPayload(system.name, (), (), ())
        for system in SYSTEMS
        if any(node.system is system for node in plan.supplied)
    ]


def kubectl(versions: Versions) -> Program:
    """The kubectl of the cluster's own version; :func:`kubectls` says which ones the host may use."""
    return kubectl_of(versions.kubernetes)


def kubectl_of(version: str) -> Program:
    """The kubectl of a version of Kubernetes (``v1.36.3``) for the host, which runs Linux."""
    return Program("kubectl", version, "linux")


def kubectls(known: Versions) -> list[Program]:
    """The kubectls that the host may use for a cluster, the best first.

    The first is that of its own version; then come those with a pinned digest, of its minor and neighboring ones.

    kubectl works with API servers that are one minor older or newer (kubernetes.io/releases/version-skew-policy).
    """
    near: dict[Program, int] = {}
    for pin in versions.load().pins.programs:
        if pin.sums_url is None and pin.artifact == kubectl_of(pin.version):
            distance = abs(int(pin.version.split(".")[1]) - known.minor)
            if distance <= 1:
                near[pin.artifact] = distance
    others = sorted(near, key=lambda program: program.version, reverse=True)
    return list(dict.fromkeys([kubectl(known), *sorted(others, key=near.__getitem__)]))


def node_images(plan: Plan, *, controller: bool) -> list[str]:
    """The references of the images that a Linux node gets before it joins; workers don't need the control plane's."""
    names = [image.reference for image in _images(plan, LINUX) if "/agnhost:" not in image.reference]
    if controller:
        return names
    theirs = plan.cluster.membership.control_plane
    return [name for name in names if not any(f"/{part}:" in name for part in theirs)]


def every(plan: Plan) -> list[Artifact]:
    """Everything that the lab needs; :func:`optional` says what is not essential."""
    artifacts: dict[Artifact, None] = {}
    for payload in payloads(plan):
        artifacts.update(dict.fromkeys(payload.artifacts))
    if plan.kubernetes is None:
        return list(artifacts)
    artifacts[kubectl(plan.cluster.versions)] = None  # a lab that joins an external cluster may have no Linux node
    for row in plan.addons:
        artifacts.update(dict.fromkeys(artifact for artifact in row.artifacts if isinstance(artifact, Manifest)))
    if not plan.joins:
        artifacts.update(dict.fromkeys(cni.get(plan.cluster.profile).published(plan.cluster.releases)))
    return list(artifacts)


def pins(plan: Plan) -> Pins:
    """The pins of what the lab may need.

    :raises HostError: a file of pins can't be used, or two disagree.
    """
    ours = versions.load().pins
    return ours.with_those_of(releases.pins for releases in _extensions(plan))


def builds(plan: Plan) -> list[GoBuild]:
    """How the parts of the lab's extensions are built, for those that say so."""
    return [build for releases in _extensions(plan) for build in releases.builds]


def _extensions(plan: Plan) -> list[Releases]:
    if plan.kubernetes is None:
        return []
    cluster = plan.cluster
    own = [cluster.distribution.known, cni.get(cluster.profile).known]
    return [*own, *(addon.registry()[row.name].load() for row in plan.addons)]


def optional(artifact: Artifact) -> bool:
    """Whether the lab comes up without it."""
    if isinstance(artifact, Program):
        return artifact.name in OPTIONAL
    return isinstance(artifact, ContainerImage) and (
        artifact.reference.partition("@")[0].rpartition("/")[2].startswith("agnhost") or _is_pause(artifact)
    )


def _is_pause(image: ContainerImage) -> bool:
    # with Windows' layers it can't be built; without it the node is Ready, but runs no pods
    return system.get(image.os).own_layers and "/pause:" in image.reference


def _programs(plan: Plan, system: System) -> tuple[Program, ...]:
    versions = plan.cluster.releases
    own = [
        artifact
        for row in plan.addons
        for artifact in row.artifacts
        if isinstance(artifact, Program) and artifact.os == system.name
    ]
    rows = plan.cluster.membership.programs(system)
    return (*(Program(name, versions[component], system.name) for name, component in rows), *own)


def _plugins(plan: Plan, system: System) -> tuple[Program, ...]:
    programs = cni.get(plan.cluster.profile).programs(plan.cluster.releases)
    return tuple(program for program in programs if program.os == system.name)


def _images(plan: Plan, system: System) -> tuple[ContainerImage, ...]:
    versions, membership = plan.cluster.versions.by_name, plan.cluster.membership
    own = [
        ContainerImage(f"{REGISTRY}/{name}:{versions[component]}", system.name)
        for name, component in membership.images(system)
        if not (plan.joins and name in membership.one_for_all)
    ]
    theirs = [*cni.get(plan.cluster.profile).images(plan.cluster.releases)]
    if plan.joins:  # the cluster itself decides the versions of everything else that runs there
        half = [image for image in theirs if plan.cluster.half and system.hns and image.os == system.name]
        return (*own, *half)
    theirs += [artifact for row in plan.addons for artifact in row.artifacts if isinstance(artifact, ContainerImage)]
    return tuple(dict.fromkeys([*own, *(image for image in theirs if image.os == system.name)]))
