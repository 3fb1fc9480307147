"""The templates in unattend/."""

from __future__ import annotations

import base64
import json

from jinja2 import ChoiceLoader, DictLoader, Environment, PrefixLoader, StrictUndefined, TemplateError, meta

from winlab import data
from winlab.design.plan.stock import Template


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


def for_xml(folder: str, own: Template | None = None) -> Environment:
    """The same for XML, which escapes values.

    :param own: the user's own template; it refers to winlab's with the prefix ``winlab/``.
    """
    ours = DictLoader(_texts(folder))
    made = Environment(
        loader=ours if own is None else ChoiceLoader([PrefixLoader({"winlab": ours}), DictLoader(own.texts)]),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters["unattend_password"] = unattend_password
    return made


def _texts(folder: str) -> dict[str, str]:
    """The files in a folder of unattend/, by name."""
    every = data.texts("unattend").items()
    return {name.removeprefix(f"{folder}/"): text for name, text in every if name.startswith(f"{folder}/")}


def references(text: str) -> list[str]:
    """The templates in its folder that a user's own template refers to; none if it is not a template."""
    try:
        found = meta.find_referenced_templates(Environment(autoescape=True).parse(text))
        return [name for name in found if name is not None and not name.startswith("winlab/")]
    except TemplateError:
        return []  # rendering reports the error
