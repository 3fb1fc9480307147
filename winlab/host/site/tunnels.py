"""The address of this host's tunnels (Geneve) to the other hosts of its site."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from winlab import settings
from winlab.design.plan.facts import LEAST_MTU
from winlab.errors import HostError, UsageError
from winlab.events import Progress
from winlab.host import fabric
from winlab.host.changes import Record
from winlab.run import run

KEY = "ovn-encap-ip"  # of external_ids, man ovn-controller
# IPv4 20, UDP 8, Geneve 8 with OVN's option 8, the inner Ethernet header 14: bytes that a tunnel adds to a packet
OVERHEAD = 58
EXAMPLE = "203.0.113.7"
BRIDGE = "br-phy"  # a name of our examples


def recorded() -> str:
    """The address that OVN's controller has for tunnels; empty if this host has none to others.

    :raises HostError: it has something else, such as several addresses.
    """
    address = fabric.ovs_ids().get(KEY, "")
    try:
        return "" if ipaddress.ip_address(address or "127.0.0.1").is_loopback else address
    except ValueError as error:
        raise HostError(
            f"'{address}' can't be the address of this host's tunnels.",
            why=f"Open vSwitch's external_ids:{KEY} must be one address.",
            cure="Choose one: 'sudo winlab host setup --tunnel-address A'.",
        ) from error


def parse(text: str) -> str:
    """An address as a user writes it.

    :raises UsageError: it is not an IPv4 address that other hosts can reach.
    """
    try:
        address = ipaddress.IPv4Address(text)
        if address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved:
            raise ValueError("It is not the address of a host.")
    except ValueError as error:
        cure = f"Give one of this host's IPv4 addresses, such as --tunnel-address {EXAMPLE}."
        raise UsageError(f"'{text}' can't be the address of tunnels.", why=str(error), cure=cure) from error
    return str(address)


def towards(host: str) -> str:
    """This host's address on the way to another one.

    :param host: an IPv4 address.
    :raises HostError: there is no route.
    """
    said = run(["ip", "-j", "route", "get", host], timeout=20, cure="Connect this host to the network of the other.")
    return str(json.loads(said.stdout)[0].get("prefsrc", ""))


def ensure(address: str, datapath: str, record: Record, progress: Progress) -> int:
    """Have OVN's controller use *address* for tunnels; returns the largest packet inside them, in bytes.

    :raises HostError: this host does not have the address, or Open vSwitch can't use it.
    """
    mtu = _check(address, datapath)
    if fabric.ovs_ids().get(KEY) != address:
        progress.say(f"tunnels to other hosts use {address}")
        fabric.set_id(KEY, address, record)
    return mtu


def be_silent() -> None:
    """Have the other gateways take this host for gone until OVN's controller runs.

    Open vSwitch remembers to answer them (BFD), and does so once it runs. A host that boots would take over from
    another gateway at once, and its labs would be silent until the controller has written their flows.
    """
    found = fabric.vsctl("--bare", "--columns=name", "find", "Interface", "type=geneve", "options:key=flow").stdout
    for name in found.split():
        fabric.vsctl("--if-exists", "clear", "Interface", name, "bfd")


def largest(address: str, datapath: str) -> int | None:
    """The largest packet inside tunnels, in bytes; None if they can't use the address now, as early in a boot."""
    try:
        return _check(address, datapath)
    except HostError:
        return None


def trouble(address: str, datapath: str) -> str:
    """What is wrong with the address, as a sentence; empty if nothing is."""
    try:
        _check(address, datapath)
    except HostError as error:
        return error.what
    return ""


def _check(address: str, datapath: str) -> int:
    link = _link(address)
    name, mtu = str(link["ifname"]), int(link["mtu"])
    # the kernel has no part in the userspace datapath: Open vSwitch sends and receives tunnels by a bridge's own port
    if datapath == "netdev" and name not in set(fabric.bridges()) - {settings.BRIDGE, settings.INTEGRATION_BRIDGE}:
        prefix = next(item["prefixlen"] for item in link["addr_info"] if item.get("local") == address)
        add = f"ovs-vsctl add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev -- add-port {BRIDGE} {name}"
        move = f"ip address del {address}/{prefix} dev {name}; ip address add {address}/{prefix} dev {BRIDGE}"
        raise HostError(
            f"Tunnels can't use the address {address} of '{name}'.",
            why="Open vSwitch switches packets in user space here. Then the address must be on one of its bridges.",
            cure=f"Name the address of such a bridge: --tunnel-address A. To make one: '{add}; {move}; ip link set "
            f"{BRIDGE} up', and the same in the host's network configuration. A network card that only tunnels use is "
            "best. winlab does not move network cards.",
        )
    if mtu - OVERHEAD < LEAST_MTU:
        raise HostError(f"'{name}' takes packets of {mtu} bytes, too few for tunnels.", cure="Give it a larger MTU.")
    return mtu - OVERHEAD


def _link(address: str) -> dict[str, Any]:
    links: list[dict[str, Any]] = json.loads(run(["ip", "-j", "address", "show"], timeout=20).stdout)
    for link in links:
        if any(item.get("local") == address for item in link["addr_info"]):
            return link
    raise HostError(
        f"This host does not have the address {address} for tunnels.",
        why=f"On a userspace datapath it belongs to a bridge of Open vSwitch, such as '{BRIDGE}'.",
        cure="Give it that address, or choose another: 'sudo winlab host setup --tunnel-address A'.",
    )
