"""Expands a user's own template for the answer file. A spec may come from someone else, and so may its template."""

from __future__ import annotations

from collections.abc import Mapping

from winlab import bounded
from winlab.design.render import answer, templates

LIMITS = bounded.Limits(memory=256 << 20, seconds=5, patience=60, answer=16 << 20)  # winlab's own takes some 0.1 s


def expand(texts: Mapping[str, str], name: str, values: Mapping[str, object]) -> str:
    """As :func:`winlab.design.render.templates.expand`, in a child process with limits.

    :raises UsageError: the template is wrong, or takes too much time or memory.
    """
    request = {"texts": texts, "name": name, "values": values}
    try:
        return str(bounded.call(templates.expand, request, LIMITS))
    except bounded.BoundedError as error:
        raise answer.unusable(name, error.why) from error
