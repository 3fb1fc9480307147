"""Routes to other nodes' pods, and source NAT to the node's address."""

from __future__ import annotations

import ipaddress
import json

from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

ROUTES_PROTOCOL = "171"  # marks winlab's routes; not used by any routing daemon in rtnetlink.h
MASQUERADE_UNIT = """\
[Unit]
Description=winlab: pods talk to the outside under the node's address
After=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=nft -f /var/lib/winlab/masquerade.nft

[Install]
WantedBy=multi-user.target
"""
ROUTES_UNIT = """\
[Unit]
Description=winlab: routes to other nodes' pods
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip -force -batch /var/lib/winlab/routes

[Install]
WantedBy=multi-user.target
"""


def routes(node: Node, settings: Settings) -> Settings:
    """Set these routes and this source NAT, and remove winlab's others, now and after a restart."""
    translated = _masquerade(node, settings.get("masquerade"))
    try:
        wanted = {str(ipaddress.IPv4Network(r["to"])): str(ipaddress.IPv4Address(r["via"])) for r in settings["routes"]}
    except ValueError as error:
        raise NodeError(f"settings.routes: {error}") from None
    lines = [f"route replace {to} via {via} proto {ROUTES_PROTOCOL}\n" for to, via in sorted(wanted.items())]
    changed = node.write("var/lib/winlab/routes", "".join(lines)) or translated
    unit = "winlab-routes.service"
    if node.write(f"etc/systemd/system/{unit}", ROUTES_UNIT):
        node.call("systemctl", "daemon-reload")
        node.call("systemctl", "enable", unit)
        changed = True
    shown = node.call("ip", "-4", "-json", "route", "show", "proto", ROUTES_PROTOCOL).strip()
    # a single address is shown without its prefix
    have = {str(ipaddress.IPv4Network(row["dst"])): row.get("gateway") for row in json.loads(shown or "[]")}
    if have == wanted:
        return {"changed": changed}
    gone = [f"route del {to} proto {ROUTES_PROTOCOL}\n" for to in sorted(have.keys() - wanted.keys())]
    node.call("ip", "-batch", "-", text="".join(gone + lines))
    return {"changed": True}


def masquerade(source: str, exceptions: list[str]) -> str:
    """A ruleset for nft(8): packets from *source*, except to *exceptions*, leave with the node's address.

    Created, flushed and filled in one transaction, so that loading it again changes nothing.
    """
    return (
        "table ip winlab\n"
        "delete table ip winlab\n"
        "table ip winlab {\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority srcnat; policy accept;\n"
        f"    ip saddr {source} ip daddr != {{ {', '.join(sorted(exceptions))} }} masquerade\n"
        "  }\n"
        "}\n"
    )


def _masquerade(node: Node, wanted: Settings | None) -> bool:
    """Set this source NAT, or remove winlab's, now and after a restart."""
    unit, file = "winlab-masquerade.service", "var/lib/winlab/masquerade.nft"
    if wanted is None:
        if not node.path(file).exists():
            return False
        node.call("systemctl", "disable", unit)
        node.path(f"etc/systemd/system/{unit}").unlink(missing_ok=True)
        node.call("nft", "-f", "-", text="table ip winlab\ndelete table ip winlab\n")
        node.path(file).unlink()
        return True
    try:
        source = str(ipaddress.IPv4Network(wanted["source"]))
        exceptions = [str(ipaddress.IPv4Network(one)) for one in wanted["exceptions"]]
    except ValueError as error:
        raise NodeError(f"settings.masquerade: {error}") from None
    changed = node.write(file, masquerade(source, exceptions))
    if node.write(f"etc/systemd/system/{unit}", MASQUERADE_UNIT):
        node.call("systemctl", "daemon-reload")
        node.call("systemctl", "enable", unit)
        changed = True
    node.call("nft", "-f", str(node.path(file)))
    return changed
