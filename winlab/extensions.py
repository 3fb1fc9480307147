"""Extensions: what one folder, or someone else's package, adds to winlab without an edit in another place.

There are two groups: ``winlab.cni`` (CNI profiles) and ``winlab.addons`` (add-ons). Our own extensions are the folders
of a package, found by listing it: a checkout needs no installed metadata, and a new folder needs no reinstallation.
Those of other packages are found by their entry points
(https://packaging.python.org/en/latest/specifications/entry-points/). An entry point names the same kind of object that
our own folders define under the group's attribute.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass

from winlab.errors import HostError

OURS = "winlab"  # the origin of what comes with winlab


@dataclass(frozen=True)
class Group:
    """A kind of extension: its name, the package whose folders are ours, and what each of those defines."""

    name: str
    package: str
    attribute: str


CNI = Group("winlab.cni", "winlab.design.cni", "PROFILES")
ADDONS = Group("winlab.addons", "winlab.addons", "ADDON")


@dataclass(frozen=True)
class Extension:
    """An extension that was found, and the package that it came with: ``winlab``, or ``name 1.0``."""

    value: object
    origin: str


def load(group: Group) -> list[Extension]:
    """Every extension of the group, ours first; sorted by name.

    :raises HostError: one can't be imported; the message names its package.
    """
    return [*_ours(group), *_others(group)]


def _ours(group: Group) -> Iterator[Extension]:
    package = importlib.import_module(group.package)
    for module_info in pkgutil.iter_modules(package.__path__):
        if module_info.ispkg:
            module = importlib.import_module(f"{group.package}.{module_info.name}")
            yield Extension(getattr(module, group.attribute), OURS)


def _others(group: Group) -> Iterator[Extension]:
    for point in sorted(importlib.metadata.entry_points(group=group.name), key=lambda one: one.name):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        try:
            yield Extension(point.load(), origin)
        except Exception as error:  # whatever another package's module raises while it is imported
            raise HostError(
                f"The extension '{point.name}' of the package '{origin}' can't be loaded.",
                why=f"{point.value}: {type(error).__name__}: {error}",
                cure="Install a version of that package that goes with this winlab, or uninstall it.",
                causes=[error],
            ) from error
