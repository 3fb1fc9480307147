"""The site's other hypervisors, recorded in OVN's northbound database: one of NB_Global's external_ids for each.

So all users of a site see the same ones, and nothing else has to be kept. Source: ovn-nb(5), table NB_Global.
"""

from __future__ import annotations

from typing import Any

from ovsdbapp.backend.ovs_idl import command

from winlab.adapters.registered import MOST, NAME, PREFIX
from winlab.design.plan.facts import HYPERVISOR

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


def drained(api: Any) -> frozenset[str]:
    """The hypervisors that take no new nodes."""
    return frozenset(
        key.removeprefix(DRAINED)
        for row in api.tables["NB_Global"].rows.values()
        for key in row.external_ids
        if key.startswith(DRAINED)
    )


class Put(command.BaseCommand):  # type: ignore[misc]
    """Record a hypervisor, or remove its record if there is no text.

    :param prefix: of the key.
    """

    def __init__(self, api: Any, name: str, text: str | None, prefix: str = PREFIX) -> None:
        super().__init__(api)
        self.key = prefix + name
        self.text = text

    def run_idl(self, _txn: Any) -> None:
        """Write the key; other keys stay as they are, even if they change at the same time."""
        for row in self.api.tables["NB_Global"].rows.values():
            if self.text is None:
                row.delkey("external_ids", self.key)
            else:
                row.setkey("external_ids", self.key, self.text)
