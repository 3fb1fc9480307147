"""An existing lab, which inspections read."""

from __future__ import annotations

from pathlib import Path

import pytest
import standing
from standing import Standing


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Standing:
    return standing.stand(monkeypatch, tmp_path)
