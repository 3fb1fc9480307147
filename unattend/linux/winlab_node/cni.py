"""CNI configurations."""

from __future__ import annotations

import json
import re

from winlab_node.node import NETWORKS, Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings


def cni(node: Node, settings: Settings) -> Settings:
    """Write CNI configurations; remove those that winlab wrote before and that are no longer listed."""
    files, before = settings["files"], node.note("cni", [])
    for name, content in files.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(conf|conflist|json)", name):
            raise NodeError(f"'{name}' is no name of a CNI configuration.")
        try:
            json.loads(content)
        except ValueError:
            raise NodeError(f"'{name}' is no JSON.") from None
    node.keep("cni", sorted({*before, *files}))  # before anything is written, so that nothing is forgotten
    changed = False
    for name, content in files.items():
        changed = node.write(f"{NETWORKS}/{name}", content) or changed
    for name in set(before) - set(files):
        path = node.path(f"{NETWORKS}/{name}")
        changed = path.exists() or changed
        path.unlink(missing_ok=True)
    node.keep("cni", sorted(files))
    return {"changed": changed}
