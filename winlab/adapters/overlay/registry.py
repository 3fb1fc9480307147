"""The site's other hypervisors, recorded in OVN's northbound database: one of NB_Global's external_ids for each.

So all users of a site see the same ones, and nothing else has to be kept. Source: ovn-nb(5), table NB_Global.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ovsdbapp.backend.ovs_idl import command

from winlab.adapters.registered import MOST, NAME, PREFIX, Registered
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import WinlabError

MOST_BELOW = 1000  # records besides the hypervisors

DRAINED = f"{PREFIX}drained:"  # of the key of one that takes no new nodes; no hypervisor's name has a colon


def texts(api: Any) -> dict[str, str]:
    """The first records as they are, by the hypervisors' names, sorted; names that none can have are left out."""
    found = {
        name: text
        for row in api.tables["NB_Global"].rows.values()
        for key, text in row.external_ids.items()
        if key.startswith(PREFIX) and NAME.fullmatch(name := key.removeprefix(PREFIX)) and name != HYPERVISOR
    }
    return {name: found[name] for name in sorted(found)[:MOST]}


def chassis(api: Any) -> list[str]:
    """OVN's names of these hypervisors, sorted; a record that can't be used is left out."""
    found = set()
    for name, text in texts(api).items():
        with suppress(WinlabError):
            found.add(Registered.parse(name, text).facts.chassis)
    return sorted(found - {""})


def below(api: Any, prefix: str) -> dict[str, str]:
    """The first records whose keys begin with *prefix*, by these keys, sorted."""
    found = {
        key: text
        for row in api.tables["NB_Global"].rows.values()
        for key, text in row.external_ids.items()
        if key.startswith(prefix)
    }
    return {key: found[key] for key in sorted(found)[:MOST_BELOW]}


def drained(api: Any) -> frozenset[str]:
    """The hypervisors that take no new nodes."""
    return frozenset(key.removeprefix(DRAINED) for key in below(api, DRAINED))


class Put(command.BaseCommand):  # type: ignore[misc]
    """Write records by their keys, and remove those that have no text; one transaction."""

    def __init__(self, api: Any, texts: Mapping[str, str | None]) -> None:
        super().__init__(api)
        self.texts = texts

    def run_idl(self, _txn: Any) -> None:
        """Write the keys; other keys stay as they are, even if they change at the same time."""
        for row in self.api.tables["NB_Global"].rows.values():
            for key, text in self.texts.items():
                if text is None:
                    row.delkey("external_ids", key)
                else:
                    row.setkey("external_ids", key, text)
