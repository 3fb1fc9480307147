"""Which of Kubernetes' minors have their real programs built and run, and these programs.

The default. ``WINLAB_TEST_MINORS`` names others (``1.35``, ``all``): ``make test-all`` takes all, and
tools/new_kubernetes.py the one it has added. Each costs a cold machine ten minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.design.system import SystemName
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource

KUBERNETES = ("kubeadm", "kubelet", "kube-proxy", "kube-log-runner")


def chosen() -> list[str]:
    """The minors, the newest first."""
    every = versions.names()
    asked = os.environ.get("WINLAB_TEST_MINORS", "")
    if asked == "all":
        return every
    if asked:
        return [versions.get(name.strip()).name for name in asked.split(",")]
    return [versions.get().name]


def programs(minor: str, system: SystemName, names: tuple[str, ...] = (*KUBERNETES, "containerd")) -> dict[str, Path]:
    """Programs of a minor by their names, built by winlab's own source ``build``, or taken from its cache."""
    combination = versions.get(minor)
    release = {"containerd": combination.containerd}
    wanted = [Program(name, release.get(name, combination.kubernetes), system) for name in names]
    found = BuildSource(combination.kubernetes).obtain_all(wanted, Quiet())
    return {row.artifact.name: row.path for row in found if isinstance(row.artifact, Program)}
