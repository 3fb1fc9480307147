"""The other hypervisors of a site: connected at the same time, so that one that is off does not delay the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from winlab.adapters.registered import Registered
from winlab.adapters.vm import connection
from winlab.adapters.vm.hypervisor import Hypervisor, Silent
from winlab.adapters.vm.volumes import StoragePool
from winlab.errors import WinlabError
from winlab.threads import Threads


def connect(
    records: Mapping[str, Callable[[], Registered]], pool: str, opened: ExitStack, limit: float = connection.OPENING
) -> list[Hypervisor | Silent]:
    """Connect to all of them, in their order.

    :param records: by name; raises WinlabError if the record can't be used.
    :param pool: the name of the storage pool.
    :param opened: ends the connections.
    :param limit: seconds in which each must be connected.
    """
    if not records:
        return []

    def one(name: str, read: Callable[[], Registered]) -> Hypervisor | Silent:
        try:
            record = read()
            conn = connection.connect(record.uri, limit)
        except WinlabError as error:
            return Silent(name, error)
        opened.callback(connection.close, conn)
        return Hypervisor(name, conn, partial(StoragePool, conn, pool), lambda: record.facts)

    with Threads(len(records)) as threads:
        return list(threads.map(one, records, records.values()))
