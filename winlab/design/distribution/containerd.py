"""containerd's configuration: config.toml, crictl.yaml and the systemd unit. Pure.

Keys: github.com/containerd/containerd internal/cri/config; config version 3 is what 2.0 and newer read (2.3 and newer
migrate it in memory).
"""

from __future__ import annotations

from typing import Any

import tomli_w
import yaml

from winlab.design.catalog.versions import Versions
from winlab.design.system import System

CNI_DIRS_SINCE = (2, 1)  # `bin_dirs`; older versions use `bin_dir`, and both together are an error

# How long a pull may make no progress: some layers of Windows have gigabytes, and unpacking one is none. The usual five
# minutes end it (openshift/windows-machine-config-operator has this, too)
LARGE_LAYERS = "30m0s"

# github.com/containerd/containerd, containerd.service
UNIT = """\
[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/containerd
Type=notify
# the default of 90 s is too short for an emulated CPU
TimeoutStartSec=600
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""


def config(versions: Versions, system: System) -> str:
    """The text of config.toml: ASCII, as containerd.exe needs it."""
    runtime: dict[str, Any] = {"cni": _cni(versions, system)}
    if system.systemd_cgroups:
        runc = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}}
        runtime["containerd"] = {"runtimes": {"runc": runc}}
    images: dict[str, Any] = {"pinned_images": {"sandbox": f"registry.k8s.io/pause:{versions.pause}"}}
    if system.own_layers:
        images["image_pull_progress_timeout"] = LARGE_LAYERS
    plugins = {"io.containerd.cri.v1.images": images, "io.containerd.cri.v1.runtime": runtime}
    return tomli_w.dumps({"version": 3, "plugins": plugins})


def crictl(system: System) -> str:
    """The text of crictl.yaml."""
    socket = system.cri_socket
    return yaml.safe_dump({"runtime-endpoint": socket, "image-endpoint": socket, "timeout": 30})


def unit() -> str:
    """/etc/systemd/system/containerd.service."""
    return UNIT


def _cni(versions: Versions, system: System) -> dict[str, Any]:
    number = tuple(int(part) for part in versions.containerd.split(".")[:2])
    place = {"bin_dirs": [system.cni_bin]} if number >= CNI_DIRS_SINCE else {"bin_dir": system.cni_bin}
    return {**place, "conf_dir": system.cni_conf}
