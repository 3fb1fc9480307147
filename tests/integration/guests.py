"""Network namespaces in place of the machines of a lab on several hosts (tests/hosts): only their packets count."""

from __future__ import annotations

import base64
import pickle

from hosts import Host
from hosts.host import WINLAB

from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology

WRITE = """
import base64, pickle, sys
from winlab.adapters.overlay import ovn
with ovn.connect() as northbound:
    wanted = pickle.loads(base64.b64decode(sys.stdin.read()))
    print(*(one.what for one in northbound.differences(wanted)), sep="\\n")
    northbound.apply(wanted)
    assert northbound.has(wanted)
"""


def write(host: Host, plan: Plan) -> list[str]:
    """Write a lab's rows, as ``create`` and ``repair`` do; returns what differed."""
    text = base64.b64encode(pickle.dumps(topology(plan))).decode()
    done = host.run(WINLAB[0], "-c", WRITE, stdin=text)
    host.run("ovn-nbctl", "--timeout=60", "--wait=sb", "sync")
    return done.stdout.split("\n")


def guest(plan: Plan, node: NodePlan) -> str:
    """The namespace of a node."""
    return f"{plan.lab}.{node.name}"


def plug(host: Host, plan: Plan, node: NodePlan) -> None:
    """Make a node's namespace on a host, and connect it to the overlay."""
    name, card = guest(plan, node), f"p-{plan.lab}"[:15]
    inside = ("ip", "-n", name)
    host.run("ip", "netns", "add", name)
    host.run("ip", "link", "add", card, "type", "veth", "peer", "name", "eth0", "address", node.mac, "netns", name)
    host.run("ethtool", "-K", card, "tx", "off")
    host.run("ip", "netns", "exec", name, "ethtool", "-K", "eth0", "tx", "off")
    host.run(*inside, "address", "add", f"{node.address}/24", "dev", "eth0")
    host.run(*inside, "link", "set", "eth0", "mtu", "1442", "up")
    host.run(*inside, "route", "add", "default", "via", plan.network.gateway)
    host.run("ip", "link", "set", card, "up")
    set_ = ("--", "set", "Interface", card, f"external_ids:iface-id={node.port}")
    host.run("ovs-vsctl", "--may-exist", "add-port", "br-int", card, *set_)
