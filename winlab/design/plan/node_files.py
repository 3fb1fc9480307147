"""What a lab's add-ons give one node: files, and values of Windows' registry. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from winlab.design import addon, system
from winlab.design import node_files as rules
from winlab.design.addon import PlannedLab, PlannedNode
from winlab.design.distribution.known import MEMBERSHIPS
from winlab.design.node_files import NodeFile, RegistryValue
from winlab.design.plan.addon_plan import AddonPlan
from winlab.errors import HostError, UsageError

OWN = tuple(path for one in MEMBERSHIPS for path in one.own_files)
CURE = "Change the add-on's settings, or leave it out; if neither helps, its authors must change it."


@dataclass(frozen=True)
class Rendered:
    """A file for a node, with its text."""

    path: str
    text: str
    mode: str
    owner: str


@dataclass(frozen=True)
class Given:
    """What all of a lab's add-ons give one node."""

    files: tuple[Rendered, ...] = ()
    registry: tuple[RegistryValue, ...] = ()


def given(rows: Sequence[AddonPlan], lab: PlannedLab, node: PlannedNode) -> Given:
    """What the add-ons of a lab give one of its nodes.

    :raises UsageError: an add-on gives what a node can't have, or two give the same; the message names them.
    :raises HostError: an add-on of an existing lab is no longer installed.
    """
    files, values = dict[str, tuple[str, Rendered]](), dict[str, tuple[str, RegistryValue]]()
    for row in rows:
        for file in _files(row, lab, node):
            what = f"the file '{file.path}'"
            key = system.get(node.os).paths.key(file.path)
            why = rules.why_not(file.path, file.text, node.os, OWN)
            _require(row.name, node, what, why or _taken(files.get(key)))
            files[key] = row.name, file
        for value in _values(row, lab, node):
            what = f"the registry value '{value.place}'"
            key = value.place.lower()
            _require(row.name, node, what, rules.why_not_set(value) or _taken(values.get(key)))
            values[key] = row.name, value
    made = tuple(file for _, file in files.values()), tuple(value for _, value in values.values())
    names = ", ".join(dict.fromkeys(name for name, _ in (*files.values(), *values.values())))
    _require(names, node, "all of their files", rules.too_much([file.text for file in made[0]], len(made[1])))
    return Given(*made)


def check(rows: Sequence[AddonPlan], lab: PlannedLab) -> None:
    """Check what the add-ons give each node.

    :raises UsageError: as :func:`given`.
    """
    for node in lab.nodes:
        given(rows, lab, node)


def _files(row: AddonPlan, lab: PlannedLab, node: PlannedNode) -> Iterator[Rendered]:
    definition, settings = _definition(row)
    try:
        for file in definition.node_files(settings, lab, node):
            if not isinstance(file, NodeFile):
                raise _wrong(row, node, f"{file!r} is not a winlab.addons.api.NodeFile")
            try:
                text = definition.text(file, settings, lab, row.versions, node)
            except ValueError as error:
                raise _wrong(row, node, f"'{file.path}': {error}") from error
            yield Rendered(file.path, text, file.mode, file.owners)
    except ValidationError as error:
        raise _wrong(row, node, _explained(error)) from error


def _values(row: AddonPlan, lab: PlannedLab, node: PlannedNode) -> Iterator[RegistryValue]:
    definition, settings = _definition(row)
    try:
        values = list(definition.registry(settings, lab, node))
    except ValidationError as error:
        raise _wrong(row, node, _explained(error)) from error
    if values and not system.get(node.os).registry:
        raise _wrong(row, node, f"'{values[0].place}': only Windows has a registry")
    for value in values:
        if not isinstance(value, RegistryValue):
            raise _wrong(row, node, f"{value!r} is not a winlab.addons.api.RegistryValue")
        yield value


def _definition(row: AddonPlan) -> tuple[addon.Addon, addon.AddonSettings]:
    definition = addon.registry().get(row.name)
    if definition is None:
        raise HostError(
            f"The add-on '{row.name}', which the lab has, is not installed.",
            why="What it gives nodes is not known without it.",
            cure="Install its package again.",
        )
    return definition, definition.Settings.model_validate(row.settings)


def _require(name: str, node: PlannedNode, what: str, why: str) -> None:
    if why:
        raise _wrong_for(name, node, f"{what}: {why}.")


def _wrong(row: AddonPlan, node: PlannedNode, why: str) -> UsageError:
    return _wrong_for(row.name, node, f"{why}.")


def _wrong_for(name: str, node: PlannedNode, why: str) -> UsageError:
    return UsageError(f"'{node.name}' can't use what it gets from the add-on '{name}'.", why=why, cure=CURE)


def _taken(other: tuple[str, object] | None) -> str:
    return f"the add-on '{other[0]}' gives it, too" if other is not None else ""


def _explained(error: ValidationError) -> str:
    rows = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, row['loc']))}: {row['msg']}".removeprefix(": ") for row in rows)
