"""What this node has so far."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

from winlab_node import kernel, rendered, state
from winlab_node.files import Record
from winlab_node.node import NETWORKS, ORIGINAL, PROGRAMS, Node, is_pushed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings


def status(node: Node, settings: Settings) -> Settings:
    """What this node has so far, or will have when the verb that changes it now has ended. Changes nothing."""
    if settings.get("settled"):
        from winlab_node.alone import alone

        with alone(node, "status"):
            pass
    record = Record(node)
    booted = re.search(r"^btime (\d+)$", node.path("proc/stat").read_text(), re.MULTILINE)
    programs = {path.name: record.sha256(path) for path in _programs(node) if not path.name.endswith(ORIGINAL)}
    containerd, kubelet = state.service(node, "containerd", "kubelet")
    networks, asked = node.path(NETWORKS), settings.get("files", [])
    return {
        "boot_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(booted[1]) if booted else 0)),
        "boot_id": state.boot_id(node),
        "programs": programs,
        "pushed": [name for name in programs if is_pushed(node.path(f"{PROGRAMS}/{name}"))],
        "prepared": _same_programs(node, record) and not node.note(rendered.TOUCHED, []),
        "files": rendered.facts(node, asked),
        "left_over": rendered.left_over(node, asked),
        "differing": kernel.differing(node),
        "containerd": {"service": containerd},
        "kubelet": {"service": kubelet},
        "joined": state.joined(node),
        "started": state.started(node),
        "cni": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(networks)},
    }


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []


def _programs(node: Node) -> list[Path]:
    names = {Path(name).name for name in node.note("prepared", {}) if name.startswith(PROGRAMS)}
    folder = node.path(PROGRAMS)
    return [path for path in _files(folder) if path.name.removesuffix(ORIGINAL) in names]


def _same_programs(node: Node, record: Record) -> bool:
    """Whether everything that ``prepare`` last installed is unchanged."""
    wanted = node.note("prepared", {})
    return bool(wanted) and all(
        record.sha256(node.path(name)) == digest or is_pushed(node.path(name)) for name, digest in wanted.items()
    )
