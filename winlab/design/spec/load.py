"""Reads a spec from a shorthand, a name in specs/ or a YAML file, and applies flags and variables.

A value that is set in several places comes from the first of: ``--set``, the field's own flag, a ``WINLAB_*`` variable,
the spec's file, the default. Errors name the place, with the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from os import environ
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from winlab import data
from winlab.design.catalog import recipes
from winlab.design.spec import options
from winlab.design.spec.draft import Change, Draft
from winlab.errors import UsageError

SHORTHAND = re.compile(r"(\d+)-(\d+)-(\d+)")
CHANGE = re.compile(r"[a-z_]+(\.[a-z0-9_-]+)*")
M = TypeVar("M", bound=BaseModel)
REHEARSAL = "windows-rehearsal"  # stands in for every release of Windows without a stand-in of its own


def names() -> list[str]:
    """The names of the specs in specs/, sorted."""
    return sorted(path.stem for path in data.folder("specs").glob("*.yaml"))


def path_of(name: str) -> Path:
    """The file of the spec *name* in specs/."""
    return data.folder("specs") / f"{name}.yaml"


def summary(name: str) -> str:
    """The comment at the top of the spec *name* in specs/, without its lines for editors."""
    lines = path_of(name).read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("#").strip() for line in itertools.takewhile(lambda one: one.startswith("#"), lines)]
    return " ".join(line for line in comments if not line.startswith("yaml-language-server:"))


def load(
    spec: type[M],
    source: str,
    changes: Iterable[str],
    *,
    os: str | None,
    iso: str | Path | None,
    rehearse: bool,
    environment: Mapping[str, str] | None,
) -> M:
    """What :meth:`winlab.design.spec.Spec.load` returns, for the model *spec*."""
    draft, folder = _read(spec, source)
    asked = [*changes]
    if rehearse and (os or iso or any(re.match(r"workers(\.[a-z0-9-]+)?\.media=", change) for change in asked)):
        raise UsageError("--rehearse brings its own media.", cure="Leave out --os and --iso, or leave out --rehearse.")
    draft.apply(
        [
            *_variables(spec, environ if environment is None else environment),
            *_flags(draft, os, iso),
            *map(_parsed, asked),
        ]
    )
    if rehearse:
        draft.rehearse(_rehearsal)
    try:
        return _absolute(spec.model_validate(draft.raw), folder)
    except ValidationError as error:
        raise draft.explained(error) from error


def _read(spec: type[BaseModel], source: str) -> tuple[Draft, Path]:
    """The raw spec, and the folder that its paths are relative to."""
    if source.endswith((".yaml", ".yml")) or "/" in source:
        path = Path(source)
    elif source in names():
        path = path_of(source)
    elif match := SHORTHAND.fullmatch(source):
        controllers, workers, hypervisors = (int(digits) for digits in match.groups())
        raw = {
            "controllers": {"count": controllers},
            "workers": {"count": workers},
            "hypervisors": hypervisors,
        }
        return Draft(spec, raw, f"the spec '{source}'"), Path()
    else:
        raise UsageError(
            f"There is no spec '{source}'.",
            cure="Give controllers-workers-hypervisors, such as 1-1-1, the path of a YAML file, or one of: "
            + ", ".join(names()),
        )
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")  # reading a device or a pipe would block
        text = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(text)
        nodes = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL byte
        raise UsageError(f"The spec '{path}' can't be read.", why=str(error)) from error
    except yaml.YAMLError as error:
        raise UsageError(f"The spec '{path}' is not YAML.", why=str(error)) from error
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise UsageError(f"The spec '{path}' is not a mapping.", cure="Begin with 'controllers:' and 'workers:'.")
    return Draft(spec, raw, f"'{path}'", nodes), Path(source).parent  # for a name in specs/, the current folder


def _variables(spec: type[BaseModel], environment: Mapping[str, str]) -> list[Change]:
    """What the environment sets; empty variables count as unset. Add-ons are only looked at if one is among them."""
    addons = any(name.startswith(f"{options.PREFIX}ADDONS_") for name in environment)
    return [
        Change(row.path, _value(text, f"The value of {row.variable}"), row.variable, everywhere=False)
        for row in (options.options(spec) if addons else options.own(spec))
        if row.variable and (text := environment.get(row.variable))
    ]


def _flags(draft: Draft, os: str | None, iso: str | Path | None) -> list[Change]:
    """What the flags for the workers set.

    :raises UsageError: there are several pools, so it is not clear which one a flag means.
    """
    medium = str(Path(iso).expanduser().resolve()) if iso else None
    pools = draft.pool_names()
    given = []
    for name, value in (("os", os), ("media", medium)):
        if value is None:
            continue
        flag = options.find(draft.spec, f"workers.{name}")[0].flag
        if len(pools) > 1:
            raise UsageError(
                f"{flag} doesn't say which pool it is for: {', '.join(pools)}.",
                cure=f"Name the pool: --set workers.{pools[0]}.{name}={value}.",
            )
        given.append(Change(f"workers.{name}", value, f"{flag} {value}"))
    return given


def _parsed(change: str) -> Change:
    """One ``--set``."""
    path, sign, value = change.partition("=")
    if not sign or not CHANGE.fullmatch(path):
        raise UsageError(
            f"'--set {change}' can't be understood.", cure="Write it as --set path=value: --set workers.cpus=4."
        )
    return Change(path, _value(value, f"The value in '--set {change}'"), f"--set {change}")


def _value(text: str, whose: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
        raise UsageError(f"{whose} is not YAML.", why=str(error)) from error


def _rehearsal(image: str) -> str | None:
    """The image of stand-in media for *image*: one of the same release, if there is one; None if it needs none."""
    asked = recipes.get(image)
    stand_ins = recipes.stand_ins(asked)
    if not stand_ins or asked.build is not None:
        return image if stand_ins else None
    same = [one.name for one in stand_ins if one.windows == asked.windows]
    return REHEARSAL if REHEARSAL in same or not same else same[0]


def _absolute(section: M, folder: Path) -> M:
    """All paths made absolute: a spec's own are relative to its file."""
    changed: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        resolved = _resolved(value, folder)
        if resolved != value:
            changed[name] = resolved
    return section.model_copy(update=changed) if changed else section


def _resolved(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        return (folder / value.expanduser()).resolve()
    if isinstance(value, BaseModel):
        return _absolute(value, folder)
    return tuple(_resolved(one, folder) for one in value) if isinstance(value, tuple) else value
