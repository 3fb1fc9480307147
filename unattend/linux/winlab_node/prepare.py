"""Everything that a node needs before kubeadm."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from pathlib import Path

from winlab_node import images, kernel, state
from winlab_node.files import Record
from winlab_node.node import ORIGINAL, PLUGINS, PROGRAMS, Node, NodeError, is_pushed, say
from winlab_node.payload import payload
from winlab_node.rendered import GIVEN, TOUCHED, write_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

SOCKET = "run/containerd/containerd.sock"


def prepare(node: Node, settings: Settings) -> Settings:
    """Install everything that a node needs before kubeadm: kernel settings, programs, files, services, images."""
    files, services = settings["files"], settings["services"]
    record = Record(node)
    for name in files:
        if not name.startswith("/") or ".." in Path(name).parts:
            raise NodeError(f"'{name}' is no absolute path.")
    with payload(node) as cd:
        listed = json.loads((cd / "payload.json").read_text())
        _check_units(node, files, listed["programs"])
        changed = kernel.tune(node)
        changed = kernel.mount_store(node) or changed
        copied = _copy(node, record, cd, listed)
        if copied:
            record.keep()  # now: what follows takes long, and may be interrupted
        touched = write_files(node, files, copied)
        _services(node, services, touched)
        imported = images.import_from(node, cd, settings.get("images"))
    wanted = {f"{PROGRAMS}/{name}": row["sha256"] for name, row in listed["programs"].items()}
    wanted |= {f"{PLUGINS}/{name}": row["sha256"] for name, row in listed["cni"].items()}
    node.keep("prepared", wanted)
    node.keep(GIVEN, sorted(files))
    node.keep(TOUCHED, [])
    if touched:
        record.keep()
    return {"changed": bool(changed or touched or imported)}


def _check_units(node: Node, files: dict[str, Settings], programs: dict[str, Settings]) -> None:
    """Check that units start winlab's programs from where they are installed."""
    for name, row in files.items():
        for program in re.findall(r"^ExecStart=(/\S+)", row["content"], re.MULTILINE):
            path = Path(program)
            if path.name in programs and path.parent != Path("/", PROGRAMS) and not node.path(program).exists():
                raise NodeError(f"'{name}' starts '{program}', but winlab installs it as '/{PROGRAMS}/{path.name}'.")


def _copy(node: Node, record: Record, cd: Path, listed: dict[str, dict[str, Settings]]) -> list[str]:
    """Copy the programs and plug-ins that are missing or differ from the CD's, and return their paths."""
    touched = []
    for part, source, folder in (("programs", "programs", PROGRAMS), ("cni", "cni", PLUGINS)):
        for name, row in listed[part].items():
            target = node.path(f"{folder}/{name}")
            if is_pushed(target):
                continue
            target.with_name(name + ORIGINAL).unlink(missing_ok=True)  # otherwise it would become a pushed one
            if record.sha256(target) != row["sha256"]:
                say(f"copying {name}")
                record.install(cd / source / name, target, row["sha256"], row.get("crc32"))
                touched.append(f"{folder}/{name}")
    return touched


def _services(node: Node, services: list[str], touched: list[str]) -> None:
    """Enable services; start them, or restart them if their files changed. The kubelet is idle before the join."""
    if any(name.startswith("etc/systemd/") for name in touched):
        node.call("systemctl", "daemon-reload")
    node.call("systemctl", "enable", *services)
    for name, found in zip(services, state.service(node, *services), strict=True):
        concerned = any(f"/{name}" in path for path in touched)
        if name == "kubelet" and not state.joined(node):
            continue
        if found != "running" or concerned:
            say(f"starting {name}")
            node.call("systemctl", "restart", name)
    if "containerd" in services:
        _await_socket(node)


def _await_socket(node: Node, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(node.path(SOCKET)))
            return
        if time.monotonic() > end:
            raise NodeError(f"containerd does not answer on '/{SOCKET}': see 'journalctl -u containerd'.")
        time.sleep(0.5)
