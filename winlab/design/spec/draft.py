"""A spec before validation: plain values, changes to them, and where each one came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from winlab.design.catalog import recipes
from winlab.design.spec import options
from winlab.design.spec.fields import MIB
from winlab.design.spec.pools import FIRST, LINUX_POOL, Pool, only_on
from winlab.design.spec.sizes import human
from winlab.errors import UsageError
from winlab.near import choose_from

LIMITS = {"less_than_equal": ("le", "most"), "greater_than_equal": ("ge", "least")}  # pydantic's errors
Place = tuple[str | int, ...]  # a field as pydantic names it: ("workers", 1, "cpus")
OF_A_SPEC = re.compile(r"([a-z_]+(?:\.[a-z0-9_-]+)*): (.*)", re.DOTALL)  # "workers.1.name: two pools are ..."


@dataclass(frozen=True)
class Change:
    """A value for a field from outside the spec's file.

    ``words`` is how the user gave it. ``everywhere`` is false for variables, which are often set in a shell profile:
    they don't apply to labs without Windows or without their add-on.
    """

    path: str
    value: Any
    words: str
    everywhere: bool = True


@dataclass
class Draft:
    """The raw values for a *spec*; ``where`` names their source in messages, ``nodes`` are its YAML nodes."""

    spec: type[BaseModel]
    raw: dict[str, Any]
    where: str
    nodes: yaml.Node | None = None
    _changed: dict[Place, Change] = field(default_factory=dict)

    def apply(self, changes: Sequence[Change]) -> None:
        """Make the changes in this order, but first those that decide which pools run Windows.

        :raises UsageError: a path leads into a value without fields, or to a pool that does not exist.
        """
        for change in sorted(changes, key=lambda one: one.path != "workers" and not one.path.endswith(".os")):
            for place, holder, name in self._targets(change):
                holder[name] = change.value
                self._changed[place] = change

    def rehearse(self, stand_in: Callable[[str], str | None]) -> None:
        """Replace each pool's image and medium by the image of stand-in media, if its system has some."""
        for _, pool in self._pools():
            image = _image(pool)
            if image in recipes.systems() and (played := stand_in(image)) is not None:
                pool["os"] = played
                pool.pop("media", None)

    def pool_names(self) -> list[str]:
        """The names of the pools under ``workers``."""
        return [_name(number, pool) for number, pool in self._pools()]

    def explained(self, error: ValidationError) -> UsageError:
        """pydantic's errors, with the place of each problem as text."""
        problems = dict.fromkeys(self._problem(item) for item in error.errors())
        return UsageError(
            f"The spec is not valid ({len(problems)} problem{'s' if len(problems) > 1 else ''}).",
            why="\n".join(problems),
            cure="'winlab spec explain' lists every field; 'winlab plan' checks a spec without touching anything.",
        )

    def _problem(self, item: Any) -> str:
        place: Place = item["loc"]
        message = item["msg"].removeprefix("Value error, ")
        if not place and (named := OF_A_SPEC.fullmatch(message)):
            place = tuple(int(part) if part.isdigit() else part for part in named[1].split("."))
            message = named[2]
        if item["type"] == "extra_forbidden":
            beside = options.fields_beside(self.spec, _path(place))
            message = f"there is no such field; {choose_from(str(place[-1]), beside)}"
        elif item["type"] == "string_pattern_mismatch":
            (row,) = options.find(self.spec, _path(place))
            message = f"should be written as {row.example}"
        elif item["type"] in LIMITS and (option := self._option(place)) is not None:
            name, words = LIMITS[item["type"]]
            limit = item["ctx"][name]
            message = f"should be at {words} {human(limit) if option.unit == MIB else limit}"
        elif isinstance(item.get("ctx", {}).get("error"), AddressValueError) and (option := self._option(place)):
            message = f"should be written as {option.example}"
        elif item["type"] == "tuple_type" and place == ("workers",):
            message = "should be the fields of a pool, or a list of pools"
        elif item["type"] == "tuple_type":
            message = f"should be a list: [{item['input']}]"
        for end in range(len(place), 0, -1):
            if (change := self._changed.get(place[:end])) is not None:
                shown = ".".join((change.path, *map(str, place[end:])))
                return f"{change.words}: {shown}: {message}"
        return f"{self.told(place)}: {message}"

    def _option(self, place: Place) -> options.Option | None:
        """The field at a place; None if it is none, or several."""
        path = _path(place)
        return next((row for row in options.options(self.spec) if row.path == path), None)

    def is_changed(self, place: Place) -> bool:
        """Whether the value of a field comes from a change, of the field or of a section that contains it."""
        return any(place[:end] in self._changed for end in range(1, len(place) + 1))

    def told(self, place: Place) -> str:
        """Where the spec's file has a field: the file, the line, the field's path."""
        line = _line(self.nodes, place) if self.nodes is not None else None
        source = self.where if line is None else f"{self.where}, line {line}"
        return f"{source}: {self._shown(place)}" if place else source

    def _shown(self, place: Place) -> str:
        """The path of a field, as ``--set`` takes it: pools by name."""
        parts = [str(part) for part in place]
        if place[0] == "workers" and len(place) > 1:
            names = {number: _name(number, pool) for number, pool in self._pools()}
            parts[1:2] = [names.get(int(place[1]), parts[1])] if isinstance(self.raw["workers"], list) else []
        return ".".join(parts)

    def _pools(self) -> list[tuple[int, dict[str, Any]]]:
        """The pools under ``workers`` that can have fields, with their places in the list."""
        if self.raw.get("workers") is None:
            self.raw["workers"] = {}
        value = self.raw["workers"]
        listed = value if isinstance(value, list) else [value]
        return [(number, pool) for number, pool in enumerate(listed) if isinstance(pool, dict)]

    def _targets(self, change: Change) -> Iterator[tuple[Place, dict[str, Any], str]]:
        """Where the change applies: the place, the mapping that holds it, and the name in that mapping."""
        path = change.path.split(".")
        if path[0] == "addons" and not change.everywhere and path[1] not in (self.raw.get("addons") or {}):
            return  # a variable changes an add-on in the spec's file, but does not turn one on
        if path[0] != "workers" or len(path) == 1:
            yield _leaf(self.raw, (), path, change)
            return
        pools = self._pools()
        chosen = [(number, pool) for number, pool in pools if _name(number, pool) == path[1]]
        if chosen:
            path.pop(1)
        elif path[1] == LINUX_POOL and len(path) > 2:
            yield _leaf(self.raw, (), ["linux_workers", *path[2:]], change)
            return
        elif len(path) > 2 and path[1] not in Pool.model_fields:
            raise UsageError(
                f"'{change.words}': there is no pool '{path[1]}'.",
                cure=f"Choose one of: {', '.join(self.pool_names())}.",
            )
        elif not pools:
            raise UsageError(f"'{change.words}': 'workers' has no fields.")
        elif only := _only_on(change):
            chosen = [(number, pool) for number, pool in pools if _runs(_image(pool)) in ("", only)]
            if not chosen and change.everywhere:
                chosen = pools  # refused when the spec is validated, with the reason
        else:
            chosen = pools
        listed = isinstance(self.raw["workers"], list)
        for number, pool in chosen:
            if len(path) == 1:
                raise UsageError(
                    f"'{change.words}' changes no field.", cure=f"Name one: workers.{_name(number, pool)}.cpus"
                )
            yield _leaf(pool, ("workers", number if listed else 0), path[1:], change)


def _leaf(
    holder: dict[str, Any], place: Place, path: Sequence[str], change: Change
) -> tuple[Place, dict[str, Any], str]:
    for key in path[:-1]:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]
        if not isinstance(holder, dict):
            raise UsageError(f"'{change.words}': '{key}' has no fields.")
    return (*place, *path), holder, path[-1]


def _only_on(change: Change) -> str:
    """The system whose pools alone have the field that the change sets for all pools; empty for other changes."""
    section, _, name = change.path.rpartition(".")
    return only_on(name) if section == "workers" else ""


def _name(number: int, pool: dict[str, Any]) -> str:
    return str(pool.get("name") or (FIRST if number == 0 else number + 1))


def _image(pool: dict[str, Any]) -> str:
    return str(pool.get("os") or Pool.model_fields["os"].default)


def _runs(image: str) -> str:
    """The title of the system in an image; empty if there is no such image."""
    return recipes.get(image).system.title if image in recipes.systems() else ""


def _line(node: yaml.Node, place: Place) -> int | None:
    """The line (from 1) of the key that *place* names, or of its nearest existing parent."""
    line: int | None = None
    for key in place:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and isinstance(key, str):
            entry = next(((name, value) for name, value in node.value if name.value == key), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif not (isinstance(node, yaml.MappingNode) and key == 0):  # a single pool without a list is the first one
            break
    return line


def _path(place: Place) -> str:
    """The path of a field in the model: without the number of its pool."""
    return ".".join(part for part in place if isinstance(part, str))
