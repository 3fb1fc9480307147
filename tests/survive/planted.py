"""A look for the lab's secrets after each kill: the scan of the integration tests, if the checkout has it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

SCAN = Path(__file__).resolve().parents[1] / "integration" / "secrets_scan.py"
Scan = Callable[[Path, str], list[str]]


def scanner() -> Scan | None:
    """What looks for the secrets of a lab of a state folder: a line for each place that must not have one."""
    if not SCAN.exists():
        return None
    spec = importlib.util.spec_from_file_location("secrets_scan", SCAN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda state, lab: list(module.leaks(state, [lab]))
