"""The templates in unattend/."""

from __future__ import annotations

import base64

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from winlab import data


def unattend_password(password: str, element: str) -> str:
    """A password as answer files hide it: base64 of UTF-16LE of the password and the element's name.

    Source: what Windows System Image Manager writes; obfuscation only.
    """
    return base64.b64encode((password + element).encode("utf-16-le")).decode()


def environment(system: str) -> Environment:
    """Jinja's environment for ``linux`` or ``windows``. XML is escaped; a missing variable is an error."""
    made = Environment(
        loader=FileSystemLoader(data.folder("unattend") / system),
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
