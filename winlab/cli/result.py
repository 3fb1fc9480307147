"""Results for programs, ``-o json|yaml|name``: one document, always of the same shape (docs/output.md)."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, make_dataclass
from typing import Any

from winlab.cli.common import Output
from winlab.errors import Failure, NotFoundError
from winlab.printable import within

VERSION = "winlab/v1"


def of(kind: type, items: Iterable[Any]) -> dict[str, Any]:
    """The document of a result.

    :param kind: a class of :mod:`winlab.cli.kinds`.
    :param items: instances of it, or their fields.
    """
    rows = [dict(one) if isinstance(one, Mapping) else asdict(one) for one in items]
    return {"apiVersion": VERSION, "kind": kind.__name__, "items": _plain(rows)}


def of_failure(exit_code: int, failures: tuple[Failure, ...], support: str) -> dict[str, Any]:
    """The document of a failure; its texts are those of the first one."""
    from winlab.cli.kinds.base import Error

    first = failures[0]
    error = Error(first.what, first.why, first.cure, first.evidence, exit_code, list(failures), support)
    return {"apiVersion": VERSION, "kind": "Error", "error": _plain(asdict(error))}


def text(document: Mapping[str, Any], output: Output, *, by_line: bool = False) -> str:
    """A document as it is printed, with the end of its last line; as names, empty if it is a failure's.

    :param by_line: it is one of several: JSON takes one line, and YAML begins with ``---``.
    """
    if output is Output.NAME:
        return "".join(f"{one['name']}\n" for one in document.get("items", ()))
    if output is Output.YAML:
        import yaml

        return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, explicit_start=by_line, width=120)
    return json.dumps(document, indent=None if by_line else 2) + "\n"


def requested(words: Iterable[str]) -> Output:
    """The format that a command line asks for, when it could not be parsed."""
    given, last = "", ""
    for word in words:
        if word == "--":
            break
        if last in ("-o", "--output"):
            given = word
        elif word.startswith("--output="):
            given = word.partition("=")[2]
        elif word.startswith("-o") and len(word) > 2:
            given = word[2:].removeprefix("=")
        last = word
    return Output(given) if given in set(Output) else Output.TABLE


@functools.cache
def kinds() -> dict[str, type]:
    """All kinds, by their names."""
    from winlab.cli.kinds import access, clusters, labs, supplies
    from winlab.cli.kinds.base import Error, Item

    found = [
        one for module in (access, clusters, labs, supplies) for one in vars(module).values() if isinstance(one, type)
    ]
    return {one.__name__: one for one in [*found, Error] if one is Error or (issubclass(one, Item) and one is not Item)}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of the documents of a kind.

    :raises NotFoundError: there is no such kind.
    """
    made = _document(kind, "ignore").json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def check(printed: str) -> None:
    """Check that a document in JSON is what its kind's schema describes.

    :raises ValueError: it is not.
    :raises NotFoundError: there is no such kind.
    """
    _document(json.loads(printed)["kind"], "forbid").validate_json(printed)


@functools.cache
def _document(kind: str, extra: str) -> Any:
    """What pydantic knows of a kind's documents: their schema, and how to check one.

    :param extra: what it does with fields that the kind does not have: a later version may have more.
    """
    from typing import Literal

    from pydantic import TypeAdapter

    if (item := kinds().get(kind)) is None:
        raise NotFoundError(f"There is no kind '{kind}'.", cure=f"Choose one of: {', '.join(sorted(kinds()))}.")
    part = ("error", item) if kind == "Error" else ("items", list[item])  # type: ignore[valid-type]
    made = make_dataclass(f"{kind}Document", [("apiVersion", Literal[VERSION]), ("kind", Literal[kind]), part])
    made.__pydantic_config__ = {"extra": extra, "strict": True}  # type: ignore[attr-defined]
    return TypeAdapter(made)


def _plain(value: Any) -> Any:
    """A value of JSON: texts are printable, and what JSON does not have is text."""
    return within(json.loads(json.dumps(value, default=str)))
