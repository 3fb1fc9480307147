"""What only OVN's southbound database says: how far each hypervisor's controller has followed.

The northbound database's ``hv_cfg`` is the lowest of all chassis, including those that are off. Source: ovn-sb(5),
Chassis_Private.
"""

from __future__ import annotations

import os

from ovsdbapp.backend.ovs_idl import connection, idlutils

from winlab import settings

TIMEOUT = 10  # seconds
UNKNOWN = -1


def progress(chassis: str) -> int:
    """The sequence number that the controller of this host's chassis of this name has reached.

    :data:`UNKNOWN` if there is no such chassis, this account may not ask (the database is root's), or the labs' OVN is
    another host's.
    """
    if not settings.northbound().startswith("unix:") or not os.access(settings.SB_SOCKET, os.R_OK | os.W_OK):
        return UNKNOWN
    return read(f"unix:{settings.SB_SOCKET}", chassis)


def read(remote: str, chassis: str) -> int:
    """As :func:`progress`, from the database at *remote* in OVSDB's notation."""
    try:
        helper = idlutils.get_schema_helper(remote, "OVN_Southbound")
        helper.register_columns("Chassis_Private", ["name", "nb_cfg"])
        link = connection.Connection(connection.OvsdbIdl(remote, helper), timeout=TIMEOUT)
        link.start()
    except Exception:  # ovsdbapp raises plain Exceptions
        return UNKNOWN
    try:
        rows = link.idl.tables["Chassis_Private"].rows.values()
        return max((int(row.nb_cfg) for row in rows if row.name == chassis), default=UNKNOWN)
    finally:
        link.stop(TIMEOUT)
