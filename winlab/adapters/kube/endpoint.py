"""Whether an address leads to a cluster's API server, as this host sees it."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

from winlab.design.cni.model import SERVER_NAME
from winlab.design.plan.existing import HTTPS

SECONDS = 10.0  # for a connection
NAMELESS = (
    f"Nodes know the API server by the name {SERVER_NAME}, which the certificates of Kubernetes' own installers have. "
    "Add it to its certificate's names."
)


def connect(address: str, ca: str) -> bool:
    """Connect to an API server, and verify it as nodes do: by the cluster's CA and a name that all have.

    :param address: host:port.
    :param ca: the cluster's CA, as PEM.
    :returns: whether the address is this host's own.
    :raises ssl.SSLError: something else is there; with its certificate's names :data:`NAMELESS` is the cure.
    :raises OSError: it can't be reached.
    :raises ValueError: it is not an address.
    """
    parts = urlsplit(f"//{address}")
    context = ssl.create_default_context(cadata=ca)
    with socket.create_connection((parts.hostname or "", parts.port or HTTPS), SECONDS) as connection:
        here: bool = connection.getsockname()[0] == connection.getpeername()[0]
        context.wrap_socket(connection, server_hostname=SERVER_NAME).close()
        return here
