"""The titles of steps, which show users what is done."""

from __future__ import annotations

import pytest

from winlab.addons import apply
from winlab.addons import recipe as addons
from winlab.engine.state import Kind
from winlab.steps import states

KINDS = [one for module in (states, apply, addons) for one in vars(module).values() if isinstance(one, Kind)]


@pytest.mark.parametrize(
    "about",
    [
        {},  # the fixed words alone
        {"lab": "lab", "node": "node-1", "of": "base-virtio-win-0123.qcow2"},
        {"lab": "golden-2022-0123", "node": "node-1", "of": "windows"},
    ],
)
def test_no_two_kinds_of_states_share_a_title(about: dict[str, str]) -> None:
    kinds: dict[str, list[str]] = {}
    for kind in {*KINDS}:
        kinds.setdefault(kind(**about).title.strip(), []).append(kind.name)
    assert {title: names for title, names in kinds.items() if len(names) > 1} == {}


def test_no_two_kinds_of_states_share_a_name() -> None:
    """Journals and recorded times know a kind by its name."""
    assert len({kind.name for kind in KINDS}) == len({id(kind) for kind in KINDS}) > 40
