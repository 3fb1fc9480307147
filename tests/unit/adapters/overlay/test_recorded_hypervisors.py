"""The list of hypervisors, which any member of the group can change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from winlab.adapters.overlay import registry
from winlab.adapters.registered import MOST, PREFIX


def listed(*names: str) -> dict[str, str]:
    row = SimpleNamespace(external_ids={"other": "x", **{f"{PREFIX}{name}": f"of {name}" for name in names}})
    api: Any = SimpleNamespace(tables={"NB_Global": SimpleNamespace(rows={1: row})})
    return registry.texts(api)


def test_the_first_hypervisor_is_never_in_the_list() -> None:
    assert listed("b", "hypervisor-1", "a") == {"a": "of a", "b": "of b"}


def test_names_that_no_hypervisor_can_have_hide_none() -> None:
    assert listed(*(f"-{number}" for number in range(2 * MOST)), "b", "A") == {"b": "of b"}


def test_only_the_first_names_count() -> None:
    names = [f"h-{number:03}" for number in range(MOST + 9)]
    assert list(listed(*reversed(names))) == names[:MOST]
