"""Replaces a program with another build."""

from __future__ import annotations

import os
import re

from winlab_node.files import Record, digest_of
from winlab_node.node import ORIGINAL, PLUGINS, PROGRAMS, Node, NodeError, is_pushed
from winlab_node.payload import payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings


SERVICES = {"kubelet": "kubelet", "containerd": "containerd", "k3s": "kubelet"}  # by program, what runs it
UNITS = "etc/systemd/system"


def push(node: Node, settings: Settings) -> Settings:
    """Replace a program with the one on the CD under push/, or restore the original."""
    name, record = settings["program"], Record(node)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", name):
        raise NodeError(f"'{name}' is no name of a program.")
    target = next((path for at in (PROGRAMS, PLUGINS) if (path := node.path(f"{at}/{name}")).exists()), None)
    if target is None:
        raise NodeError(f"'{name}' is not installed here: there is nothing to swap.")
    _require_use(node, name)
    original = target.with_name(name + ORIGINAL)
    if settings.get("restore"):
        if not is_pushed(target):
            original.unlink(missing_ok=True)
            return {"changed": False, "sha256": record.sha256(target)}
        original.replace(target)
    else:
        with payload(node) as cd:
            source = cd / "push" / name
            if not source.exists():
                raise NodeError(f"winlab's CD has no push/{name}.")
            digest = digest_of(source)
            if digest == record.sha256(target):
                return {"changed": False, "sha256": digest}
            if not is_pushed(target):
                original.unlink(missing_ok=True)
                os.link(target, original)  # the new program gets the name, and this file stays
            record.install(source, target, digest)
    if service := SERVICES.get(name):
        node.call("systemctl", "restart", service)
    digest = record.sha256(target)
    record.keep()
    return {"changed": True, "sha256": digest}


def _require_use(node: Node, name: str) -> None:
    """Check that this node's service runs the program. A program that no service runs is accepted.

    :raises NodeError: its service runs another one.
    """
    unit = node.path(f"{UNITS}/{SERVICES.get(name, name)}.service")
    if name not in SERVICES or not unit.exists():
        return
    found = re.search(r"^ExecStart=(/\S+)", unit.read_text(), re.MULTILINE)
    if found and not found[1].endswith(f"/{name}"):
        raise NodeError(f"This node does not run '{name}': its service runs '{found[1]}'.")
