"""The templates in unattend/."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from jinja2 import (
    ChoiceLoader,
    DictLoader,
    Environment,
    PrefixLoader,
    StrictUndefined,
    TemplateError,
    TemplateRuntimeError,
    meta,
)

from winlab import data
from winlab.design.plan.stock import Template
from winlab.design.render.sandbox import Sandbox

LONGEST = 1 << 20  # characters of an answer file; winlab's own has some 10,000
SOURCE = 1 << 17  # bytes of a user's own template, with those in its folder that it refers to


def unattend_password(password: str, element: str) -> str:
    """A password as answer files obfuscate it: base64 of UTF-16LE of the password and the element's name.

    Source: what Windows System Image Manager writes. It is not encryption.
    """
    return base64.b64encode((password + element).encode("utf-16-le")).decode()


def for_yaml(folder: str) -> Environment:
    """Jinja's environment for the templates of YAML files in a folder. A missing variable is an error."""
    made = Environment(
        loader=DictLoader(_texts(folder)), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    made.filters["tojson"] = json.dumps  # Jinja's own escapes for HTML
    return made


def for_xml(folder: str) -> Environment:
    """The same for XML, which escapes values."""
    made = Environment(
        loader=DictLoader(_texts(folder)), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    made.filters["unattend_password"] = unattend_password
    return made


def render_own(folder: str, own: Template, values: Mapping[str, object]) -> str:
    """The text that a user's own template for XML makes; it refers to winlab's in *folder* with the prefix ``winlab/``.

    A spec may come from somebody else, so its template is rendered in a sandbox (:mod:`.sandbox`). It sees the values
    and its own texts, and no Python objects behind them. Its time and memory are bounded.

    :raises TemplateError: the template is wrong, leaves the sandbox, takes too much time or memory, or makes more than
        ``LONGEST`` characters.
    """
    made = Sandbox(
        loader=ChoiceLoader([PrefixLoader({"winlab": DictLoader(_texts(folder))}), DictLoader(own.texts)]),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.add_filter("unattend_password", unattend_password)
    parts: list[str] = []
    length = 0
    try:
        for part in made.get_template(own.name).generate(values):
            length += len(part)
            if length > LONGEST:
                raise TemplateRuntimeError(f"it makes more than {LONGEST} characters")
            parts.append(part)
    except TemplateError:
        raise
    except Exception as error:  # whatever the code that Jinja makes of a template raises, the template is to blame
        raise TemplateRuntimeError(f"{type(error).__name__}: {error}") from error
    return "".join(parts)


def _texts(folder: str) -> dict[str, str]:
    """The files in a folder of unattend/, by name."""
    every = data.texts("unattend").items()
    return {name.removeprefix(f"{folder}/"): text for name, text in every if name.startswith(f"{folder}/")}


def references(text: str) -> list[str]:
    """The templates in its folder that a user's own template refers to; none if it is not a template."""
    try:
        names = meta.find_referenced_templates(Environment(autoescape=True).parse(text))
        return [name for name in names if name is not None and not name.startswith("winlab/")]
    except (TemplateError, RecursionError, ValueError):
        return []  # rendering reports the error
