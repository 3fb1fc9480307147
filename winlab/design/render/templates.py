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


def environment(system: str, own: Template | None = None) -> Environment:
    """Jinja's environment for ``linux`` or ``windows``. XML is escaped; a missing variable is an error.

    :param own: the user's own template; it refers to winlab's with the prefix ``winlab/``.
    """
    ours = DictLoader(
        {
            name.removeprefix(f"{system}/"): text
            for name, text in data.texts("unattend").items()
            if name.startswith(f"{system}/")
        }
    )
    made = Environment(
        loader=ours if own is None else ChoiceLoader([PrefixLoader({"winlab": ours}), DictLoader(own.texts)]),
        autoescape=system == "windows",
        undefined=StrictUndefined,
        trim_blocks=system == "linux",
        keep_trailing_newline=True,
    )
    if system == "linux":
        # Jinja's own tojson escapes for HTML; cloud-init's YAML wants plain JSON
        made.filters["tojson"] = json.dumps
    made.filters["unattend_password"] = unattend_password
    return made


def references(text: str) -> list[str]:
    """The templates in its folder that a user's own template refers to; none if it is not a template."""
    try:
        found = meta.find_referenced_templates(Environment(autoescape=True).parse(text))
        return [name for name in found if name is not None and not name.startswith("winlab/")]
    except TemplateError:
        return []  # rendering reports the error
