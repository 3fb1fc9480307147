"""Results of scripts in nodes, for fakes that give only a part: the rest is that of a fresh guest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winlab.design.contract import on_both, on_linux, on_windows
from winlab.design.contract.call import Call, CallResult, R

ABSENT = {"service": "absent"}
FRESH: dict[type[CallResult], dict[str, Any]] = {
    on_both.Changed: {"changed": True},
    on_both.Joined: {"changed": True, "joined": True},
    on_windows.Sealing: {"build": "20348.2762", "evaluation_minutes": None, "rearms": 5},
    on_windows.Sysprep: {"running": False, "state": "IMAGE_STATE_COMPLETE", "succeeded": False, "errors": []},
    on_linux.LinuxFacts: {
        "boot_time": "2026-11-22T10:00:00Z",
        "boot_id": "b1",
        "programs": {},
        "pushed": [],
        "prepared": False,
        "files": {},
        "left_over": [],
        "differing": [],
        "containerd": ABSENT,
        "kubelet": ABSENT,
        "joined": False,
        "started": False,
        "cni": {},
    },
    on_windows.WindowsFacts: {
        "boot_time": "2026-11-22T10:00:00Z",
        "boot_id": "1",
        "build": "20348.2762",
        "containers_feature": "absent",
        "restart_pending": False,
        "containerd": {**ABSENT, "sha256": "", "config_sha256": ""},
        "binaries": {},
        "installed_from": "",
        "cd": "",
        "pushed": [],
        "kubelet": {**ABSENT, "command": "", "joined": False},
        "cni": {},
        "proxy": {**ABSENT, "command": ""},
    },
}


def result(call: Call[R], told: Mapping[str, Any], node: str = "node-1") -> R:
    """The result of a call; ``told`` is the part that matters to the test."""
    return call.read(_over(FRESH.get(call.result, {}), told), node, "lab")


def _over(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: _over(old[name], value) for name, value in new.items() if isinstance(old.get(name), dict)}
    return {**old, **new, **nested}
