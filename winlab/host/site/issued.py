"""Which keys the first host has signed: no second host gets a certificate for a name that is taken.

A name is taken while its chassis is in OVN's southbound database, or in the list of hypervisors. No other host can
remove it there (RBAC, man ovn-architecture). The record says which key the host has, so that it can renew its
certificate.
"""

from __future__ import annotations

import json

from winlab import documents
from winlab.errors import ConflictError, HostError, UsageError
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import relay

PATH = program.FOLDER / "issued.json"


def check(chassis: str, key: str) -> None:
    """Check that a host whose name is taken is the one that was admitted under it.

    :param key: the SHA-256 of its public key.
    :raises ConflictError: it has another key.
    :raises HostError: the record can't be used.
    """
    if _read().get(chassis) != key:
        raise ConflictError(
            f"A host of this site has the name {chassis} already, and this one has another key.",
            why="This host is a copy of that one, with the same system-id in Open vSwitch. Or it is the same host, and "
            "lost its key, as when it was installed again.",
            cure="On a copy, remove /etc/openvswitch/system-id.conf and restart Open vSwitch. If it is the same host, "
            f"run 'sudo ovn-sbctl --no-leader-only --if-exists chassis-del {chassis}' on the first host, and 'winlab "
            "hypervisor remove' if 'winlab hypervisor list' has it. Then join again.",
        )


def note(chassis: str, key: str, record: Record) -> None:
    """Record the key of a host, before it gets its certificate.

    :raises HostError: the record can't be used.
    """
    known = _read()
    if known.get(chassis) != key:
        relay.write(PATH, json.dumps({**known, chassis: key}, indent=1, sort_keys=True) + "\n", record)


def _read() -> dict[str, str]:
    text = relay.text(PATH)
    try:
        known = documents.from_json(text) if text else {}
        if not isinstance(known, dict) or not all(isinstance(one, str) for one in known.values()):
            raise ValueError("It is not a list of hosts and keys.")
    except (UsageError, ValueError) as error:
        raise HostError(
            f"The record of the hosts' keys, '{PATH}', can't be used.",
            why=str(error),
            cure="Restore it from a backup, or remove it. A host that joins again is then refused at first, and the "
            "message says what to do.",
        ) from error
    return known
