"""Reads a spec from a shorthand, a name in specs/, a YAML file or the standard input, and applies flags and variables.

A value that is set in several places comes from the first of: ``--set``, the field's own flag, a ``WINLAB_*`` variable,
the spec's file, the default. Errors name the place, with the line.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from os import environ
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from winlab import account, data, documents
from winlab.design.catalog import recipes
from winlab.design.spec import options, paths
from winlab.design.spec.draft import Change, Draft
from winlab.errors import UsageError

SHORTHAND = re.compile(r"([0-9]{1,4})-([0-9]{1,4})-([0-9]{1,4})")
LONGEST = 4 << 20  # characters of a spec
STDIN = "-"
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
    allow: Iterable[str | Path],
    environment: Mapping[str, str] | None,
) -> tuple[M, tuple[Path, ...]]:
    """What :meth:`winlab.design.spec.Spec.load` returns, for the model *spec*, and where its files may be."""
    draft, folder = _read(spec, source)
    variables = _variables(spec, environ if environment is None else environment)
    roots = paths.roots(folder, allow)
    return _made(spec, draft, variables, changes, folder, roots, os=os, iso=iso, rehearse=rehearse), roots


def changed(
    held: M,
    changes: Iterable[str],
    *,
    os: str | None,
    iso: str | Path | None,
    rehearse: bool,
) -> M:
    """A spec that was valid before, with changes: what :meth:`winlab.design.spec.Spec.changed` returns."""
    spec = type(held)
    draft = Draft(spec, held.model_dump(mode="json", exclude_unset=True), "the lab's spec")
    # its own paths were checked when it was loaded
    return _made(spec, draft, [], changes, None, (Path("/"),), os=os, iso=iso, rehearse=rehearse)


def _made(
    spec: type[M],
    draft: Draft,
    variables: Iterable[Change],
    changes: Iterable[str],
    folder: Path | None,
    roots: tuple[Path, ...],
    *,
    os: str | None,
    iso: str | Path | None,
    rehearse: bool,
) -> M:
    """The spec of a draft, with all of its changes."""
    asked = [*changes]
    if rehearse and (iso or any(re.match(r"workers(\.[a-z0-9-]+)?\.media=", change) for change in asked)):
        raise UsageError("--rehearse brings its own media.", cure="Leave out --iso, or leave out --rehearse.")
    if rehearse and os in recipes.systems() and _rehearsal(os) is None:
        raise UsageError(f"--rehearse simulates Windows, and {os} is not Windows.", cure="Leave out --rehearse.")
    draft.apply([*variables, *_flags(draft, os, iso), *(_parsed(spec, change) for change in asked)])
    if rehearse:
        draft.rehearse(_rehearsal)
    try:
        made = spec.model_validate(draft.raw)
    except ValidationError as error:
        raise draft.explained(error) from error
    return paths.absolute(made, folder or Path(), draft, roots)


def _read(spec: type[BaseModel], source: str) -> tuple[Draft, Path | None]:
    """The raw spec, and its folder; None for one that is not the user's file: its paths come from the user alone."""
    path = Path()
    if source == STDIN:
        pass
    elif source.endswith((".yaml", ".yml")) or "/" in source:
        path = Path(source)
    elif source in names():
        path = path_of(source)
    elif match := SHORTHAND.fullmatch(source):
        controllers, workers, hypervisors = (int(digits) for digits in match.groups())
        raw = {
            "controllers": {"count": controllers},
            "workers": {"count": workers} if controllers else {"count": workers, "cluster": False},
            "hypervisors": hypervisors,
        }
        return Draft(spec, raw, f"the spec '{source}'"), None
    else:
        raise UsageError(
            f"There is no spec '{source}'.",
            cure="Give controllers-workers-hypervisors, such as 1-1-1, the path of a YAML file, '-' for the standard "
            f"input, or one of: {', '.join(names())}",
        )
    try:
        text = _text(source, path)
        raw = documents.from_yaml(text)
        nodes = documents.nodes(text)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL byte
        raise UsageError(f"The spec '{source}' can't be read.", why=str(error)) from error
    except yaml.YAMLError as error:
        raise UsageError(f"The spec '{source}' is not YAML.", why=_yaml_problem(error)) from None
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise UsageError(f"The spec '{source}' is not a mapping.", cure="Begin with 'controllers:' and 'workers:'.")
    return Draft(spec, raw, f"'{source}'", nodes), None if source in names() else path.parent


def _text(source: str, path: Path) -> str:
    """The text of a spec's file, or of the standard input.

    :raises OSError: it is too long, or can't be read.
    """
    if source == STDIN:
        text = sys.stdin.read(LONGEST + 1)
    elif path.exists() and not path.is_file():
        raise OSError("it is not a file")  # reading a device or a pipe would block
    else:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise OSError(f"it has more than {LONGEST:,} characters")
    return text


def _variables(spec: type[BaseModel], environment: Mapping[str, str]) -> list[Change]:
    """What the environment sets; empty variables count as unset. Add-ons are only looked at if one is among them."""
    addons = any(name.startswith(f"{options.PREFIX}ADDONS_") for name in environment)
    return [
        Change(
            row.path, _value(text, f"The value of {row.variable}", secret=row.secret), row.variable, everywhere=False
        )
        for row in (options.options(spec) if addons else options.own(spec))
        if row.variable and (text := environment.get(row.variable))
    ]


def _flags(draft: Draft, os: str | None, iso: str | Path | None) -> list[Change]:
    """What the flags for the workers set.

    :raises UsageError: there are several pools, so it is not clear which one a flag means.
    """
    medium = str(account.followed(iso)) if iso else None
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


def _parsed(spec: type[BaseModel], change: str) -> Change:
    """One ``--set``. Messages repeat its value only if it is certainly not a secret."""
    path, sign, value = change.partition("=")
    if not sign or not CHANGE.fullmatch(path):
        begin = re.split(r"[^\w.-]", change, maxsplit=1)[0]
        shown = change if begin == change else f"{begin}..."
        raise UsageError(
            f"'--set {shown}' can't be understood.", cure="Write it as --set path=value: --set workers.cpus=4."
        )
    secret = options.is_secret(spec, path)
    words = f"--set {path}={value if secret is False else '...'}"
    return Change(path, _value(value, f"The value in '{words}'", secret=secret is True), words)


def _value(text: str, whose: str, *, secret: bool) -> Any:
    """The value in a text; that of a secret may be in a file: ``@FILE``."""
    if secret and text.startswith("@"):
        try:
            return Path(text[1:]).expanduser().read_text(encoding="utf-8-sig").strip()
        except (OSError, RuntimeError, ValueError) as error:
            why = f"'{text[1:]}' is not text in UTF-8." if isinstance(error, ValueError) else str(error)
            raise UsageError(f"{whose} can't be read from its file.", why=why) from None
    try:
        return documents.from_yaml(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
        raise UsageError(f"{whose} is not YAML.", why=_yaml_problem(error)) from None


def _yaml_problem(error: Exception) -> str:
    """What is wrong and where, without the line itself: it may contain a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return f"{where}{problem or type(error).__name__}"


def _rehearsal(image: str) -> str | None:
    """The image of stand-in media for *image*: one of the same release, if there is one; None if it needs none."""
    asked = recipes.get(image)
    stand_ins = recipes.stand_ins(asked)
    if not stand_ins or asked.build is not None:
        return image if stand_ins else None
    same = [one.name for one in stand_ins if one.windows == asked.windows]
    return REHEARSAL if REHEARSAL in same or not same else same[0]
