"""The registry of add-ons, as if winlab had just been started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from winlab.design import addon


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Resets the registry, in this test and after it."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    addon.registry.cache_clear()
    addon._model.cache_clear()
