"""The templates in unattend/."""

from __future__ import annotations

import base64
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined

from winlab import data


def unattend_password(password: str, element: str) -> str:
    """A password as answer files hide it: base64 of UTF-16LE of the password and the element's name.

    Source: what Windows System Image Manager writes; obfuscation only.
    """
    return base64.b64encode((password + element).encode("utf-16-le")).decode()


def environment(system: str, own: Path | None = None) -> Environment:
    """Jinja's environment for ``linux`` or ``windows``. XML is escaped; a missing variable is an error.

    :param own: a folder of a person's own templates; they find winlab's with ``winlab/`` before the names.
    """
    ours = FileSystemLoader(data.folder("unattend") / system)
    made = Environment(
        loader=ours if own is None else ChoiceLoader([PrefixLoader({"winlab": ours}), FileSystemLoader(own)]),
        autoescape=system == "windows",
        undefined=StrictUndefined,
        trim_blocks=system == "linux",
        keep_trailing_newline=True,
    )
    if system == "linux":
        import json

        # Jinja's own tojson escapes for HTML; cloud-init's YAML wants plain JSON
        made.filters["tojson"] = json.dumps
    made.filters["unattend_password"] = unattend_password
    return made
