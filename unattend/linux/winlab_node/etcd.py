"""etcd's members, through the member on this controller."""

from __future__ import annotations

import http.client
import json
import ssl
import time

from winlab_node.node import Node, NodeError, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

ENDPOINT = ("127.0.0.1", 2379)
KEYS = "etc/kubernetes/pki/etcd"
SECONDS = 120  # removing a member needs a majority


def forget_member(node: Node, settings: Settings) -> Settings:
    """Remove a controller, by its address, from etcd's members; run on another controller, where etcd runs.

    Until then a dead member counts toward etcd's majority. Uses etcd's HTTP interface (etcd.io, "gRPC gateway"),
    because its command-line program is not on every node.
    """
    peer = f"https://{settings['address']}:2380"
    found = [row for row in ask(node, "list", {}).get("members", []) if peer in row.get("peerURLs", [])]
    for row in found:
        say(f"etcd forgets the member {row.get('name') or peer}")
        end = time.monotonic() + SECONDS
        while True:
            try:
                ask(node, "remove", {"ID": row["ID"]})
                break
            except NodeError as error:  # it refuses for 5 s after it has connected to a member
                if "unhealthy cluster" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(1)
    return {"changed": bool(found)}


def ask(node: Node, verb: str, question: Settings) -> Settings:
    """Send etcd a request about its members.

    :raises NodeError: it refuses or does not answer.
    """
    keys = node.path(KEYS)
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(str(keys / "healthcheck-client.crt"), str(keys / "healthcheck-client.key"))
    connection = http.client.HTTPSConnection(*ENDPOINT, timeout=SECONDS, context=context)
    try:
        connection.request("POST", f"/v3/cluster/member/{verb}", json.dumps(question))
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status != http.client.OK:
            raise NodeError(f"etcd member {verb}: {text}")
        told: Settings = json.loads(text)
        return told
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NodeError(f"etcd member {verb}: {error}; has etcd lost its majority?") from error
    finally:
        connection.close()
