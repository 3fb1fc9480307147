"""Options and helpers for all tests."""

from __future__ import annotations

import durations
import hypothesis
import pytest

# the duration of an example depends on the load of the machine
hypothesis.settings.register_profile("winlab", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("winlab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write the golden files again")
    parser.addoption(
        "--keep-labs",
        action="store_true",
        help="keep the shared labs of tests/integration for the next run, or use them",
    )


def pytest_configure(config: pytest.Config) -> None:
    durations.register(config)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names bytes that are not plain text by their length: an archive's hold the time, and pytest-xdist wants one name.

    Two values of one length get pytest's own suffix.
    """
    if isinstance(val, bytes) and not (val.isascii() and val.decode("ascii").isprintable()):
        return f"{len(val)} bytes"
    return None
