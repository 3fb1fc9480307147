"""The relay's program: its files, its arguments and its systemd unit. Pure.

A relay (``ovsdb-server relay:...``, man ovsdb-server) serves OVN's southbound database to other hosts over TLS; the
database itself stays on its Unix socket. The role ``ovn-controller`` (man ovn-architecture, RBAC) limits what a host's
certificate may change. A role can be given only in a row of a database that the same process serves. It is not a row
of the southbound database: its own server, which also listens on what those rows say, would open the port without TLS.
So the relay serves a small database beside. That has the tables of roles, too, but empty: no host can change a row.
"""

from __future__ import annotations

import json
from pathlib import Path

PORT = 6642  # OVN's usual one for this database
FOLDER = Path("/etc/winlab/tls")
AUTHORITY, KEY, CERTIFICATE = (FOLDER / name for name in ("ca.pem", "key.pem", "certificate.pem"))
DATABASE = Path("/var/lib/winlab/relay.db")
LOCK = DATABASE.with_name(f".{DATABASE.name}.~lock~")  # ovsdb-server makes it
PID = Path("/run/ovn/winlab-relay.pid")
CONTROL = Path("/run/ovn/winlab-relay.ctl")
LOG = Path("/var/log/ovn/winlab-relay.log")
UNIT = Path("/etc/systemd/system/winlab-relay.service")
NAME = "Winlab_Relay"
PROBE_MS = 60_000  # a controller on a busy host may be silent for long

_WORDS = {"type": {"key": "string", "min": 0, "max": "unlimited"}}
SCHEMA = json.dumps(
    {
        "name": NAME,
        "version": "1.0.0",
        "tables": {
            "Relay": {
                "isRoot": True,
                "maxRows": 1,
                "columns": {
                    "connections": {
                        "type": {"key": {"type": "uuid", "refTable": "Connection"}, "min": 0, "max": "unlimited"}
                    }
                },
            },
            "Connection": {
                "columns": {
                    "target": {"type": "string"},
                    "role": {"type": "string"},
                    "inactivity_probe": {"type": {"key": "integer", "min": 0, "max": 1}},
                }
            },
            # as in ovn-sb.ovsschema: a database without these tables lets every role change everything
            "RBAC_Role": {
                "isRoot": True,
                "columns": {
                    "name": {"type": "string"},
                    "permissions": {
                        "type": {
                            "key": "string",
                            "value": {"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"},
                            "min": 0,
                            "max": "unlimited",
                        }
                    },
                },
            },
            "RBAC_Permission": {
                "isRoot": True,
                "columns": {
                    "table": {"type": "string"},
                    "authorization": _WORDS,
                    "insert_delete": {"type": "boolean"},
                    "update": _WORDS,
                },
            },
        },
    }
)


def rows(address: str) -> str:
    """The transaction that has the relay listen on *address*, with the role of controllers."""
    connection = {"target": f"pssl:{PORT}:{address}", "role": "ovn-controller", "inactivity_probe": PROBE_MS}
    insert = {"op": "insert", "table": "Connection", "uuid-name": "one", "row": connection}
    root = {"op": "insert", "table": "Relay", "row": {"connections": ["named-uuid", "one"]}}
    return json.dumps([NAME, insert, root])


def arguments() -> tuple[str, ...]:
    """The relay's program and its arguments, in the foreground."""
    return (
        "ovsdb-server",
        f"--log-file={LOG}",
        f"--unixctl={CONTROL}",
        f"--private-key={KEY}",
        f"--certificate={CERTIFICATE}",
        f"--ca-cert={AUTHORITY}",
        f"--remote=db:{NAME},Relay,connections",
        str(DATABASE),
        "relay:OVN_Southbound:unix:/run/ovn/ovnsb_db.sock",
    )


def unit_text(path: str) -> str:
    """The relay's systemd unit.

    :param path: where ovsdb-server is.
    """
    return f"""\
# Written by 'winlab host setup'; removed by 'winlab host teardown'.
[Unit]
Description=OVN's southbound database for the other hosts of winlab's site
After=network-online.target ovn-central.service ovn-northd.service ovn-ovsdb-server-sb.service
Wants=network-online.target

[Service]
ExecStart={path} {" ".join(arguments()[1:])}
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
