"""containerd's configuration: config.toml, crictl.yaml and the systemd unit. Pure.

Keys: github.com/containerd/containerd internal/cri/config; config version 3 is what 2.0 and newer read (2.3 and newer
migrate it in memory).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from winlab.design.catalog.artifact import System
from winlab.design.catalog.versions import Versions
from winlab.design.render.kubeadm import SOCKETS

CNI_BIN = {"linux": "/opt/cni/bin", "windows": "C:/opt/cni/bin"}
CNI_CONF = {"linux": "/etc/cni/net.d", "windows": "C:/etc/cni/net.d"}
CNI_DIRS_SINCE = (2, 1)  # `bin_dirs`; before `bin_dir`, and both together are an error
Value = str | bool | int | list[str]

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


def config(versions: Versions, os: System) -> str:
    """The text of config.toml: ASCII, as containerd.exe needs it."""
    tables: dict[tuple[str, ...], dict[str, Value]] = {
        ("plugins", "io.containerd.cri.v1.images", "pinned_images"): {
            "sandbox": f"registry.k8s.io/pause:{versions.pause}"
        },
        ("plugins", "io.containerd.cri.v1.runtime", "cni"): _cni(versions, os),
    }
    if os == "linux":
        runc = ("plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes", "runc")
        tables[runc] = {"runtime_type": "io.containerd.runc.v2"}
        tables[*runc, "options"] = {"SystemdCgroup": True}
    return _toml({"version": 3}, tables)


def crictl(os: System) -> str:
    """The text of crictl.yaml."""
    return yaml.safe_dump({"runtime-endpoint": SOCKETS[os], "image-endpoint": SOCKETS[os], "timeout": 30})


def unit() -> str:
    """/etc/systemd/system/containerd.service."""
    return UNIT


def _cni(versions: Versions, os: System) -> dict[str, Value]:
    number = tuple(int(part) for part in versions.containerd.split(".")[:2])
    place: dict[str, Value] = {"bin_dirs": [CNI_BIN[os]]} if number >= CNI_DIRS_SINCE else {"bin_dir": CNI_BIN[os]}
    return {**place, "conf_dir": CNI_CONF[os]}


def _toml(top: Mapping[str, Value], tables: Mapping[tuple[str, ...], Mapping[str, Value]]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in top.items()]
    for path, rows in tables.items():
        lines += ["", f"[{'.'.join(_key(part) for part in path)}]"]
        lines += [f"{key} = {_value(value)}" for key, value in rows.items()]
    return "\n".join(lines) + "\n"


def _key(part: str) -> str:
    return f"'{part}'" if "." in part else part


def _value(value: Value) -> str:
    return json.dumps(value)  # JSON's strings, numbers, booleans and lists are TOML's, too
