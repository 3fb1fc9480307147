"""Time in a fake lab passes only by sleeping, for checks and for the waits beneath them."""

from __future__ import annotations

import checks_fakes
import pytest
import runs


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> runs.Clock:
    made = runs.clock(monkeypatch)
    monkeypatch.setattr(checks_fakes, "CLOCK", made)
    return made
