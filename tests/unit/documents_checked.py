"""A fixture: every result that a command prints for programs is what the schema of its kind describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from winlab.cli import result


@pytest.fixture(autouse=True)
def documents_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    text = result.text

    def checked(document: Mapping[str, Any], *words: Any, **more: Any) -> str:
        result.check(json.dumps(document))
        return text(document, *words, **more)

    monkeypatch.setattr(result, "text", checked)
