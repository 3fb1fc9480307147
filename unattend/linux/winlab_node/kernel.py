"""Kernel settings, swap and disks as the kubelet and the pods need them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from winlab_node.node import Node, say

STORE_LABEL = b"WINLAB_STORE"
STORE = "var/lib/containerd"
STORE_ROW = "LABEL=WINLAB_STORE /var/lib/containerd ext4 defaults,nofail,x-systemd.before=containerd.service 0 2\n"
MODULES = ("overlay", "br_netfilter")
SYSCTLS = {
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.ipv4.ip_forward": "1",
}
# otherwise a restart of systemd-networkd would remove routes of CNI plug-ins and winlab
NETWORKD = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n"
FILES = {
    "etc/modules-load.d/winlab.conf": "".join(f"{name}\n" for name in MODULES),
    "etc/sysctl.d/90-winlab.conf": "".join(f"{key} = {value}\n" for key, value in SYSCTLS.items()),
    "etc/systemd/networkd.conf.d/90-winlab.conf": NETWORKD,
}


def tune(node: Node) -> bool:
    """Load modules, set sysctls, turn swap off, have networkd keep others' routes. Returns whether anything changed."""
    changed = False
    for name, content in FILES.items():
        changed = node.write(name, content) or changed
    missing = _missing(node)
    if missing:
        node.call("modprobe", "-a", *missing)
    for key, value in SYSCTLS.items():
        knob = _knob(node, key)
        if knob.read_text().strip() != value:
            knob.write_text(value)
            changed = True
    return _no_swap(node) or bool(missing) or changed


def differing(node: Node) -> list[str]:
    """What :func:`tune` would change: files, modules and sysctls by name, and swap. Changes nothing."""
    found = [f"/{name}" for name, content in FILES.items() if _text(node.path(name)) != content]
    found += [f"module {name}" for name in _missing(node)]
    found += [f"sysctl {key}" for key, value in SYSCTLS.items() if _text(_knob(node, key)).strip() != value]
    return [*found, "swap"] if len(node.path("proc/swaps").read_text().splitlines()) > 1 else found


def _missing(node: Node) -> list[str]:
    """The modules that are neither loaded nor built into the kernel; /sys need not show built-in ones."""
    release = _text(node.path("proc/sys/kernel/osrelease")).strip()
    builtin = _text(node.path(f"lib/modules/{release}/modules.builtin"))
    loaded = node.path("sys/module")
    return [name for name in MODULES if not (loaded / name).exists() and f"/{name}.ko\n" not in builtin]


def _knob(node: Node, key: str) -> Path:
    return node.path("proc/sys/" + key.replace(".", "/"))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def mount_store(node: Node) -> bool:
    """Mount the disk that has containerd's store with the images in it, if winlab gave the node one."""
    if not any(
        _ext4_label(node.path("dev") / block.name) == STORE_LABEL for block in node.path("sys/block").glob("sd*")
    ):
        return False
    place = node.path(STORE)
    if f" {place} " in node.path("proc/self/mounts").read_text():
        return False
    table = node.path("etc/fstab")
    old = table.read_text() if table.exists() else ""
    if STORE_ROW not in old:
        node.write("etc/fstab", f"{old.rstrip()}\n{STORE_ROW}".lstrip())
    place.mkdir(parents=True, exist_ok=True)
    say("mounting containerd's store")
    node.call("systemctl", "daemon-reload")
    node.call("mount", str(place))
    return True


def _ext4_label(device: Path) -> bytes:
    """The label of an ext4 file system, from its superblock (Linux, Documentation/filesystems/ext4); empty: none."""
    with contextlib.suppress(OSError), device.open("rb", buffering=0) as disk:
        disk.seek(1024)
        block = disk.read(1024)
        if block[56:58] == b"\x53\xef":
            return block[120:136].rstrip(b"\0")
    return b""


def _no_swap(node: Node) -> bool:
    """Turn swap off: the kubelet refuses to start with it."""
    changed = False
    table = node.path("etc/fstab")
    if table.exists():
        old = table.read_text()
        new = re.sub(r"^(?=[^#\s]\S*\s+\S+\s+swap\s)", "# winlab: ", old, flags=re.MULTILINE)
        if new != old:
            changed = node.write("etc/fstab", new)
    if len(node.path("proc/swaps").read_text().splitlines()) > 1:
        node.call("swapoff", "-a")
        changed = True
    return changed
