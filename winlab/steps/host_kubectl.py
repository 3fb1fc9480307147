"""The kubectl that this host runs for a lab: a link into the cache, which is read whole before winlab relies on it."""

from __future__ import annotations

from winlab.lab_folder import LabFolder
from winlab.supply.artifacts import store


def trouble(folder: LabFolder) -> str:
    """What is wrong with a lab's kubectl; empty if nothing is.

    :raises UsageError: the link leads to a place in the cache that winlab did not make.
    """
    if not folder.has(folder.kubectl):
        return "leads nowhere" if folder.kubectl.is_symlink() else "missing"
    return "" if store.is_whole(folder.kubectl.resolve()) else "not what was obtained"


def drop_damaged(folder: LabFolder) -> None:
    """Remove a damaged kubectl from the cache, so that it is obtained again."""
    if folder.has(folder.kubectl) and not store.is_whole(file := folder.kubectl.resolve()):
        store.drop(file)
