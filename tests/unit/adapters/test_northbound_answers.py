"""A northbound database that does not answer is reported without the rows that were to be written."""

from __future__ import annotations

from typing import Any

import pytest
from ovsdbapp.exceptions import TimeoutException

from winlab.adapters.overlay import ovn
from winlab.errors import HostError


def test_a_change_that_is_not_confirmed_is_reported_in_short() -> None:
    class Write:
        def execute(self, **_: object) -> None:
            raise TimeoutException(commands="row " * 10_000, timeout=20, cause="Result queue is empty")

    api: Any = None
    write: Any = Write()
    with pytest.raises(HostError, match="does not answer") as caught:
        ovn.Northbound(api)._execute(write)
    assert "overloaded" in caught.value.why
    assert "row row" not in str(caught.value)
