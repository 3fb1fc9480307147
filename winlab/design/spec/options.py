"""The table of all fields of the spec: one row per field, made from its declaration.

The row gives the field's flag, its environment variable, what ``winlab spec explain`` says, and its line in
docs/specs.md. The functions take the spec's model as an argument: :class:`winlab.design.spec.Spec` itself uses them.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from winlab.design.spec.fields import DEFAULT, FLAG, MIB, SECRET, SYSTEMS, UNIT
from winlab.design.spec.sizes import human
from winlab.errors import UsageError
from winlab.near import near

PREFIX = "WINLAB_"
ALL_SYSTEMS = "Linux and Windows"
BEGIN, END = "<!-- table: winlab spec explain -->", "<!-- end of table -->"  # around the table in docs/specs.md


@dataclass(frozen=True)
class Option:
    """A field: what it means, and every way to set it."""

    path: str  # workers.cpus
    meaning: str
    values: str
    default: str
    unit: str
    systems: str
    flag: str  # empty: only --set
    variable: str  # empty: lists have none
    example: str  # as YAML
    secret: bool = False  # may be given as @FILE, and is in no message

    @property
    def section(self) -> str:
        """The path without the field's own name; empty for a field of the spec itself."""
        return self.path.rpartition(".")[0]


def options(spec: type[BaseModel]) -> tuple[Option, ...]:
    """All fields, in the order of the spec, including those of all installed add-ons."""
    return tuple(_walk(spec, "", {}, installed=True))


@cache
def own(spec: type[BaseModel]) -> tuple[Option, ...]:
    """All fields except those of add-ons; loads no add-on."""
    return tuple(_walk(spec, "", {}, installed=False))


def sections(spec: type[BaseModel]) -> dict[str, str]:
    """What each section of the spec means, by its path."""
    return dict(_sections(spec, ""))


def find(spec: type[BaseModel], path: str) -> tuple[Option, ...]:
    """The field *path*, or all fields of the section *path*; all fields if it is empty.

    :raises UsageError: neither exists; the message suggests similar ones.
    """
    rows = tuple(row for row in options(spec) if not path or row.path == path or row.path.startswith(f"{path}."))
    if rows:
        return rows
    similar = near(path, [*sections(spec), *(row.path for row in options(spec))])
    raise UsageError(
        f"A spec has no field '{path}'.",
        cure=f"Did you mean {' or '.join(similar)}?" if similar else "'winlab spec explain' lists all fields.",
    )


def fields_beside(spec: type[BaseModel], path: str) -> list[str]:
    """The names of all fields of the section that *path* is in, sorted; *path* itself need not exist."""
    model = spec
    for name in path.split(".")[:-1]:
        field = model.model_fields.get(name)
        inner = _section(field) if field is not None else None
        if inner is None:
            return []
        model = inner
    return sorted(model.model_fields)


def is_secret(spec: type[BaseModel], path: str) -> bool | None:
    """Whether the value for *path*, as ``--set`` has it, is a secret.

    None: it may contain one, because *path* is a section or not a field at all.
    """
    model: type[BaseModel] | None = spec
    field: FieldInfo | None = None
    parts = path.split(".")
    for number, name in enumerate(parts):
        if model is None:
            return None
        if number == 1 and parts[0] == "workers" and name not in model.model_fields:
            continue  # a pool's name
        field = model.model_fields.get(name)
        if field is None:
            return None
        model = _section(field)
    if model is None:
        return field is not None and SECRET in _extra(field.json_schema_extra)
    return None


def table(spec: type[BaseModel]) -> str:
    """The table of docs/specs.md, in Markdown."""
    lines = ["| field | values | default | meaning |", "| --- | --- | --- | --- |"]
    for row in options(spec):
        values = f"{row.values} {row.unit}" if row.unit and row.unit != MIB else row.values
        meaning = row.meaning + (f" (`{row.flag}`)" if row.flag else "")
        lines.append("| " + " | ".join((f"`{row.path}`", values, row.default, meaning)) + " |")
    return "\n".join(lines) + "\n"


def _walk(model: type[BaseModel], prefix: str, above: dict[str, Any], *, installed: bool) -> Iterator[Option]:
    known = {name: field for name, field in model.model_fields.items() if installed or not _depends(field)}
    inner = {name: _section(field) for name, field in known.items()}
    plain: dict[str, Any] = {name: (field.annotation, field) for name, field in known.items() if inner[name] is None}
    leaves: type[BaseModel] = create_model("Leaves", **plain)
    described = leaves.model_json_schema()
    for name, field in known.items():
        section = inner[name]
        if section is None:
            yield _row(f"{prefix}{name}", field, described["properties"][name], above)
        else:
            extra = _extra(section.model_config.get("json_schema_extra"))
            yield from _walk(section, f"{prefix}{name}.", extra, installed=installed)


def _row(path: str, field: FieldInfo, schema: dict[str, Any], above: dict[str, Any]) -> Option:
    unit = schema.get(UNIT, "")
    if DEFAULT in schema:
        usual = schema[DEFAULT]
    elif unit == MIB:
        usual = human(field.default).replace(" ", "")
    else:
        usual = "none: it has to be given" if field.is_required() else _yaml(field.default)
    return Option(
        path=path,
        meaning=schema.get("description", ""),
        values=_values(schema, unit),
        default=usual,
        unit=unit,
        systems=schema.get(SYSTEMS) or above.get(SYSTEMS) or ALL_SYSTEMS,
        flag=schema.get(FLAG, ""),
        variable="" if schema.get("type") == "array" else PREFIX + re.sub("[.-]", "_", path.upper()),
        example=_yaml(field.examples[0] if field.examples else field.default) if not field.is_required() else "...",
        secret=SECRET in schema,
    )


def _values(schema: dict[str, Any], unit: str) -> str:
    """The allowed values, as text."""
    if unit == MIB:
        return f"{_size(schema['minimum'])} to {_size(schema['maximum'])}"
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = next((one for one in kinds if "enum" in one), kinds[0])
    if "enum" in kind or "const" in kind:
        return _either([str(value) for value in kind.get("enum") or [kind["const"]]])
    match kind["type"]:
        case "array":
            return "a list of paths" if kind["items"].get("format") == "path" else "a list"
        case "boolean":
            return "true or false"
        case "integer":
            low, high = kind.get("minimum"), kind.get("maximum")
            return f"{low} to {high}" if high is not None else f"{low} or more"
    return "a path" if kind.get("format") == "path" else "text"


def _size(mib: int) -> str:
    """The shortest form in a spec: ``512MiB``, ``4GiB``, ``1TiB``."""
    return f"{mib >> 20}TiB" if mib % (1 << 20) == 0 else human(mib).replace(" ", "")


def _either(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"


def _yaml(value: Any) -> str:
    """A value as a spec has it, in one line."""
    if isinstance(value, str):
        return value
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        inner = _section(field)
        if inner is not None:
            yield f"{prefix}{name}", " ".join((inner.__doc__ or "").split())
            yield from _sections(inner, f"{prefix}{name}.")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field is, or is a list of; the section of add-ons depends on which are installed."""
    section = next((one.section for one in field.metadata if hasattr(one, "section")), None)
    return section or _model_of(field.annotation)


def _depends(field: FieldInfo) -> bool:
    """Whether the field's section depends on what is installed."""
    return any(hasattr(type(one), "section") for one in field.metadata)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_of, typing.get_args(annotation))), None)


def _extra(extra: Any) -> dict[str, Any]:
    return extra if isinstance(extra, dict) else {}
