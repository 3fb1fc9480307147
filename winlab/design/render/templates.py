"""The templates in unattend/."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from jinja2 import DictLoader, Environment, StrictUndefined, TemplateError, TemplateRuntimeError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from winlab import data

LONGEST = 1 << 20  # characters of an answer file; winlab's own has some 10,000
SOURCE = 1 << 17  # bytes of a user's own template, with those in its folder that it refers to

# Makes the text of a user's own template, as expand does: supply.images.expansion does so within limits
Expand = Callable[[Mapping[str, str], str, Mapping[str, object]], str]


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


def expand(texts: Mapping[str, str], name: str, values: Mapping[str, object]) -> str:
    """The text that a user's own template for XML makes. It may be hostile: call it with limits on time and memory.

    Jinja's sandbox shows it the values and the texts, and no Python objects behind them.

    :param texts: the template, and all that it may refer to, by name.
    :param name: the template's.
    :raises TemplateError: the template is wrong, leaves the sandbox, or makes more than ``LONGEST`` characters.
    :raises Exception: whatever the code that Jinja makes of the template raises.
    """
    made = ImmutableSandboxedEnvironment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    made.filters["unattend_password"] = unattend_password
    parts: list[str] = []
    length = 0
    for part in made.get_template(name).generate(values):
        length += len(part)
        if length > LONGEST:
            raise TemplateRuntimeError(f"it makes more than {LONGEST} characters")
        parts.append(part)
    return "".join(parts)


def for_own(folder: str, own: Mapping[str, str]) -> dict[str, str]:
    """What a user's *own* templates may refer to: themselves, and winlab's in *folder* as ``winlab/...``."""
    return {**own, **{f"winlab/{name}": text for name, text in _texts(folder).items()}}


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
