"""The JSON Schema of specs, with which editors check and complete them: specs/spec.schema.json."""

from __future__ import annotations

import json
from typing import Any

from winlab.design.spec.model import Spec

FILE = "spec.schema.json"  # in specs/, whose files name it in their first line


def schema() -> dict[str, Any]:
    """The schema of a spec's file."""
    generated = Spec.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_tidy(generated),
        "title": "A spec of winlab",
    }


def text() -> str:
    """The text of specs/spec.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _tidy(value: Any) -> Any:
    """Remove repetition: titles made of names, limits under pydantic's names, defaults of whole sections."""
    if isinstance(value, dict):
        return {key: _tidy(one) for key, one in value.items() if not _repeats(key, one)}
    return [_tidy(one) for one in value] if isinstance(value, list) else value


def _repeats(key: str, value: Any) -> bool:
    if key == "default":
        return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))
    return key in ("ge", "le") or (key == "title" and isinstance(value, str))
