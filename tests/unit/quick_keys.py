"""RSA keys are made once for all labs of a run: each takes a twentieth of a second, and a lab needs two."""

from __future__ import annotations

import functools
import itertools

import pytest

from winlab.design.plan import credentials

KEYS = 6  # a small lab and its new credentials have different ones
_make = functools.cache(lambda _number, make=credentials._rsa: make())
_numbers = itertools.cycle(range(KEYS))


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labs take turns at a few keys."""
    monkeypatch.setattr(credentials, "_rsa", lambda: _make(next(_numbers)))
