"""``metrics-server``: the resource metrics of nodes and pods, for ``kubectl top`` and autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from winlab import documents
from winlab.addons.api import Addon, AddonSettings, Check, Cluster, PlannedLab, Problem
from winlab.design.catalog.artifact import Artifact, ContainerImage
from winlab.design.plan import tags
from winlab.design.spec.fields import option
from winlab.design.system import LINUX, WINDOWS, System
from winlab.errors import ClusterError

REPOSITORY = "registry.k8s.io/metrics-server/metrics-server"
OLDEST = 34  # the minor version of Kubernetes (metrics-server v0.9.0, README.md, "Compatibility Matrix")
METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
USUAL, EMULATED = 15, 30  # seconds; an emulated kubelet takes several to answer


class MetricsSettings(AddonSettings):
    """CPU and memory of nodes and pods, for kubectl top and autoscalers."""

    resolution: int | None = option(
        None,
        "Time between two measurements",
        ge=10,
        le=600,
        unit="seconds",
        otherwise=f"{USUAL}, where guests are emulated {EMULATED}",
        example=60,
    )


class MetricsServer(Addon):
    """One Deployment on a Linux node, and the API group metrics.k8s.io."""

    name = "metrics-server"
    summary = "CPU and memory of nodes and pods: kubectl top, autoscaling"
    Settings = MetricsSettings
    pins = Path(__file__).with_name("pins.yaml")
    templates = Path(__file__).with_name("manifests")

    def problems(self, settings: MetricsSettings, lab: PlannedLab) -> list[Problem]:  # noqa: ARG002
        """Whether the lab's version of Kubernetes is supported."""
        kubernetes = lab.cluster.releases["kubernetes"]
        if int(kubernetes.split(".")[1]) >= OLDEST:
            return []
        return [
            Problem(
                f"metrics-server supports Kubernetes 1.{OLDEST} and newer, not {kubernetes}.",
                f"Use --set kubernetes.version=1.{OLDEST} or newer, or leave metrics-server out.",
            )
        ]

    def required(
        self,
        settings: MetricsSettings,  # noqa: ARG002
        lab: PlannedLab,  # noqa: ARG002
        versions: Mapping[str, str],
    ) -> list[Artifact]:
        """Its image."""
        return [ContainerImage(_image(versions), LINUX.name)]

    def values(self, settings: MetricsSettings, lab: PlannedLab, versions: Mapping[str, str]) -> dict[str, Any]:
        """The image and the times."""
        emulated = any(host.accelerator != "kvm" for host in lab.hypervisors.values())
        resolution = settings.resolution or (EMULATED if emulated else USUAL)
        # it rejects time-outs above 9/10 of the resolution (cmd/metrics-server/app/options/options.go)
        return {"image": _image(versions), "resolution": resolution, "timeout": resolution * 2 // 3}

    def checks(self, settings: MetricsSettings) -> list[Check]:  # noqa: ARG002
        """Whether the API has metrics for every node. The stand-in for Windows has none."""
        return [
            Check("metrics for every Linux node", "Linux nodes", 600, lambda cluster: _measured(cluster, LINUX)),
            Check(
                "metrics for every Windows node",
                "Windows nodes",
                600,
                lambda cluster: _measured(cluster, WINDOWS),
                windows=True,
                real=True,
            ),
        ]


def _image(versions: Mapping[str, str]) -> str:
    return f"{REPOSITORY}:{versions['metrics-server']}"


def _measured(cluster: Cluster, system: System) -> str:
    """What the metrics API reports about the nodes of one system.

    :raises ClusterError: it does not answer, or has none for one of them.
    """
    rows = documents.from_json(cluster.kubectl.run("get", f"--raw={METRICS}"))["items"]
    usage = {str(row["metadata"]["name"]): row["usage"] for row in rows}
    wanted = [tag.node for tag in tags.running(system, cluster.nodes)]
    missing = [name for name in wanted if name not in usage]
    if missing:
        raise ClusterError(f"there are no metrics for {', '.join(missing)} yet")
    return "; ".join(f"{name}: CPU {usage[name]['cpu']}, memory {usage[name]['memory']}" for name in wanted)


ADDON = MetricsServer()
