"""Images, imported from the CD into containerd."""

from __future__ import annotations

import json
from pathlib import Path

from winlab_node.node import PROGRAMS, Node, NodeError, say
from winlab_node.payload import payload
from winlab_node.state import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

NOTE = "importing"
PINNED = "io.cri-containerd.pinned=pinned"  # the kubelet's garbage collection leaves such images alone


def load(node: Node, settings: Settings) -> Settings:
    """Import the CD's images into containerd: those of ``images`` (references), or all."""
    with payload(node) as cd:
        return {"changed": import_from(node, cd, settings.get("images"))}


def import_from(node: Node, cd: Path, wanted: list[str] | None) -> bool:
    """Import the CD's images (or *wanted*) that containerd lacks; it checks every blob's digest."""
    archives = sorted((cd / "images").glob("*.tar"))
    if not archives and not node.note(NOTE, {}):
        return False
    ctr = [str(node.path(f"{PROGRAMS}/ctr")), "-n", "k8s.io"]
    noted = _drop_unfinished(node, ctr)
    have = _images(node, ctr)
    missing: dict[Path, dict[str, str]] = {}
    for archive in archives:
        inside = archive_images(archive)
        if wanted is not None and not inside.keys() & set(wanted):
            continue
        if not inside or any(have.get(name) != digest for name, digest in inside.items()):
            missing[archive] = inside
    if not missing:
        if noted:
            node.keep(NOTE, {})  # which flushes them
        return False
    digests = {*noted, *(digest for inside in missing.values() for digest in inside.values())}
    node.keep(NOTE, {"boot": boot_id(node), "digests": sorted(digests)})
    for archive in missing:
        say(f"importing {archive.name}")
        try:
            node.call(*ctr, "images", "import", "--local", "--label", PINNED, str(archive))
        except NodeError as error:
            raise NodeError(f"containerd does not take '{archive.name}' from winlab's CD: {error}") from None
    node.keep(NOTE, {})
    return True


def _images(node: Node, ctr: list[str]) -> dict[str, str]:
    """Digests of containerd's images, by name."""
    rows = [line.split() for line in node.call(*ctr, "images", "ls").splitlines()]
    return {row[0]: row[2] for row in rows if len(row) > 2 and row[2].startswith("sha256:")}


def _drop_unfinished(node: Node, ctr: list[str]) -> list[str]:
    """Remove the images that a power cut may have left half unpacked; those imported since this boot stay.

    containerd flushes its database with each change, but not the unpacked files: it would consider them complete. The
    import's lease, valid for a day, would keep them (containerd, docs/garbage-collection.md).

    :returns: digests of images that were imported since this boot, and that may not be on disk yet.
    """
    noted = node.note(NOTE, {})
    if not noted:
        return []
    digests: list[str] = noted["digests"]
    if noted["boot"] == boot_id(node):
        return digests
    say("removing images whose import was cut off")
    if leases := node.call(*ctr, "leases", "ls", "-q").split():
        node.call(*ctr, "leases", "rm", *leases)
    # including under the names that the CRI plug-in gives them
    if names := [name for name, digest in _images(node, ctr).items() if digest in digests]:
        node.call(*ctr, "images", "rm", "--sync", *names)
    node.keep(NOTE, {})
    return []


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
