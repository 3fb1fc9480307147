"""What only OVN's southbound database says: how far each hypervisor's controller has followed.

The northbound database's ``hv_cfg`` is the lowest of all chassis, including those that are off. Source: ovn-sb(5),
Chassis_Private.
"""

from __future__ import annotations

import os

from ovsdbapp.backend.ovs_idl import connection, idlutils

from winlab import settings
from winlab.adapters import remote
from winlab.adapters.remote import Remote
from winlab.errors import HostError

TIMEOUT = 10  # seconds
UNKNOWN = -1


def progress(chassis: str) -> int:
    """The sequence number that the controller of the chassis of this name has reached.

    :data:`UNKNOWN` if there is no such chassis, or this account may not ask: the database is root's, and the group may
    read it on a site with several hosts.
    """
    northbound = settings.northbound()
    there = Remote.of(northbound)
    if there is not None:
        try:
            with remote.forwarded(there.url(settings.SB_GROUP_SOCKET)) as path:
                return read(f"unix:{path}", chassis)
        except HostError:
            return UNKNOWN
    if northbound.startswith("unix:"):
        for path in (settings.SB_SOCKET, settings.SB_GROUP_SOCKET):
            if os.access(path, os.R_OK | os.W_OK):
                return read(f"unix:{path}", chassis)
    return UNKNOWN


def read(remote: str, chassis: str) -> int:
    """As :func:`progress`, from the database at *remote* in OVSDB's notation."""
    try:
        helper = idlutils.get_schema_helper(remote, "OVN_Southbound")
        helper.register_columns("Chassis_Private", ["name", "nb_cfg"])
        link = connection.Connection(connection.OvsdbIdl(remote, helper, leader_only=False), timeout=TIMEOUT)
        link.start()
    except Exception:  # ovsdbapp raises plain Exceptions
        return UNKNOWN
    try:
        with link.lock:  # rows change while they are read
            rows = link.idl.tables["Chassis_Private"].rows.values()
            return max((int(row.nb_cfg) for row in rows if row.name == chassis), default=UNKNOWN)
    finally:
        link.stop(TIMEOUT)
