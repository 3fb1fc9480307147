"""Images, imported from the CD into containerd."""

from __future__ import annotations

import json
from pathlib import Path

from winlab_node.node import PROGRAMS, Node, NodeError, say
from winlab_node.payload import payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

PINNED = "io.cri-containerd.pinned=pinned"  # the kubelet's garbage collection leaves such images alone


def load(node: Node, settings: Settings) -> Settings:
    """Import the CD's images into containerd: those of ``images`` (references), or all."""
    with payload(node) as cd:
        return {"changed": import_from(node, cd, settings.get("images"))}


def import_from(node: Node, cd: Path, wanted: list[str] | None) -> bool:
    """Import the CD's images (or *wanted*) that containerd lacks; it checks every blob's digest."""
    archives = sorted((cd / "images").glob("*.tar"))
    if not archives:
        return False
    ctr = [str(node.path(f"{PROGRAMS}/ctr")), "-n", "k8s.io", "images"]
    rows = [line.split() for line in node.call(*ctr, "ls").splitlines()]
    have = {row[0]: row[2] for row in rows if len(row) > 2 and row[2].startswith("sha256:")}
    changed = False
    for archive in archives:
        inside = archive_images(archive)
        if wanted is not None and not inside.keys() & set(wanted):
            continue
        if not inside or any(have.get(name) != digest for name, digest in inside.items()):
            say(f"importing {archive.name}")
            try:
                node.call(*ctr, "import", "--local", "--label", PINNED, str(archive))
            except NodeError as error:
                raise NodeError(f"containerd does not take '{archive.name}' from winlab's CD: {error}") from None
            changed = True
    return changed


def archive_images(path: Path) -> dict[str, str]:
    """The images of an OCI archive: digests by name. Empty for Docker's older archives, which have no index."""
    import tarfile  # here: it is slow to load, and a CD may have no images

    try:
        with tarfile.open(path) as archive:
            found = archive.extractfile("index.json")
            rows = json.load(found)["manifests"] if found is not None else []
    except KeyError:
        return {}
    except (tarfile.TarError, ValueError) as error:
        raise NodeError(f"'{path.name}' is no archive of images: {error}") from None
    names = [(row.get("annotations", {}).get("io.containerd.image.name"), row["digest"]) for row in rows]
    return {name: digest for name, digest in names if name}
