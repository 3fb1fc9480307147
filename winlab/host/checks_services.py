"""Checks of the services and the network: libvirt, Open vSwitch, OVN, the external bridge, and your groups."""

from __future__ import annotations

import grp
import os
import pwd

from winlab import settings
from winlab.host import bridges, daemons, fabric, facts, firewall, memory_hook, storage, subnet
from winlab.host.check import SETUP, Host, Requirement, Status, named
from winlab.host.site.checks import site
from winlab.run import run

USUAL_MTU, LEAST_MTU = 1500, 1280  # bytes: the default of network.mtu, and the least it takes


def judge_group(user: str, member: bool, active: bool, root: bool) -> Requirement:
    """The result for the group: *member* according to the group file, *active* in this process."""
    name = f"group {settings.GROUP}"
    why = "Its members use libvirt and OVN without root."
    if root:
        return Requirement(name, Status.OK, "not needed by root", why)
    if active:
        return Requirement(name, Status.OK, f"{user} is a member", why)
    if member:
        cure = f"Log out and in again (or 'newgrp {settings.GROUP}')."
        return Requirement(name, Status.FAIL, f"{user} is a member, but not yet in this session", why, cure)
    cure = f"Run 'sudo usermod -aG {settings.GROUP} {user}', then log out and in again."
    return Requirement(name, Status.FAIL, f"{user} is not a member", why, cure)


@named("group", "Members of the group need no root.")
def group(_host: Host) -> list[Requirement]:
    """Whether this user may use libvirt and OVN."""
    try:
        entry = grp.getgrnam(settings.GROUP)
    except KeyError:
        return [
            Requirement(
                f"group {settings.GROUP}",
                Status.FAIL,
                "this group does not exist",
                "libvirt's package creates it.",
                SETUP,
            )
        ]
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return [judge_group(str(os.getuid()), False, entry.gr_gid in os.getgroups(), os.geteuid() == 0)]
    member = user.pw_name in entry.gr_mem or user.pw_gid == entry.gr_gid
    active = entry.gr_gid in {*os.getgroups(), os.getegid()}
    return [judge_group(user.pw_name, member, active, os.geteuid() == 0)]


def _follows(reason: str) -> str:
    """The cure of a check that fails because this user is not in the group; empty if it has another reason."""
    denied = "permission denied" in reason.lower() and os.geteuid() != 0
    return f"This follows from the check 'group {settings.GROUP}': its cure comes first." if denied else ""


@named("libvirt", "It runs the nodes.")
def libvirt(_host: Host) -> list[Requirement]:
    """Whether libvirt answers, and whether the labs' pool exists."""
    said = run(["virsh", "-q", "-c", "qemu:///system", "version"], check=False, timeout=60)
    why = "It runs the nodes and keeps their disks."
    if said.returncode != 0:
        reason = (said.stderr.strip().splitlines() or [""])[-1]
        cure = _follows(reason) or f"{SETUP} If it was run: 'systemctl status libvirtd'."
        return [Requirement("libvirt", Status.FAIL, f"does not answer: {reason}", why, cure)]
    version = next((line.split()[-1] for line in said.stdout.splitlines() if "Using library" in line), "answers")
    requirements = [Requirement("libvirt", Status.OK, version, why)]
    name = f"storage pool {settings.POOL}"
    info = storage.virsh("pool-info", settings.POOL, check=False)
    if info.returncode != 0:
        return [*requirements, Requirement(name, Status.FAIL, "missing", "It holds the disks of all labs.", SETUP)]
    running = any(line.split()[-1] == "running" for line in info.stdout.splitlines() if line.startswith("State"))
    if not running:
        return [*requirements, Requirement(name, Status.FAIL, "stopped", "It holds the disks of all labs.", SETUP)]
    return [*requirements, Requirement(name, Status.OK, "running", "It holds the disks of all labs.")]


@named("memory of clones", "Clones of a running lab need its memory.")
def clones(_host: Host) -> list[Requirement]:
    """How clones of a running lab get its memory. Either way works."""
    why = "Clones that share a snapshot's memory start at once, and take only as much memory as they change."
    trouble = memory_hook.trouble()
    detail = f"each clone restores the whole memory: {trouble}" if trouble else "copy-on-write"
    return [Requirement("memory of clones", Status.OK, detail, why)]


@named("Open vSwitch", "Nodes' network cards are plugged into it.")
def ovs(host: Host) -> list[Requirement]:
    """Whether Open vSwitch runs, and with which datapath."""
    why = "Nodes' network cards are plugged into it."
    if not daemons.ovs_up():
        return [Requirement("Open vSwitch", Status.FAIL, "does not run", why, SETUP)]
    kind = host.facts.datapath if host.facts.recorded else "unknown"
    if os.geteuid() == 0 and fabric.vsctl("br-exists", settings.INTEGRATION_BRIDGE, check=False).returncode == 0:
        kind = fabric.find_datapath()
    if kind == "netdev":
        detail = "userspace datapath, because the kernel has none: slower, and guests' offloads are switched off"
        cure = "Use a kernel with the module 'openvswitch', if speed matters."
        return [Requirement("Open vSwitch", Status.WARN, detail, why, cure)]
    return [Requirement("Open vSwitch", Status.OK, f"runs, {kind} datapath", why)]


@named("OVN", "It is the labs' network.")
def ovn(host: Host) -> list[Requirement]:
    """Whether the northbound database is reachable, and northd and the controllers follow it."""
    if host.facts.joined:
        return []  # it is on the site's first host
    why = "winlab creates labs' switches, routers, DHCP and addresses in its northbound database."
    base = ["ovn-nbctl", f"--db={settings.northbound()}", "--no-leader-only", "--timeout=6"]
    said = run([*base, "--bare", "--columns=name", "list", "Logical_Switch"], check=False, timeout=20)
    if said.returncode != 0:
        reason = (said.stderr.strip().splitlines() or [""])[-1]
        cure = _follows(reason) or SETUP
        return [Requirement("OVN northbound", Status.FAIL, f"{settings.northbound()}: {reason}", why, cure)]
    requirements = [Requirement("OVN northbound", Status.OK, settings.northbound(), why)]
    # Each waits until the daemon has processed a new sequence number (man ovn-nbctl, --wait).
    if run([*base, "--wait=sb", "sync"], check=False, timeout=20).returncode != 0:
        return [
            *requirements,
            Requirement("OVN northd", Status.FAIL, "is not up to date with the northbound database", why, SETUP),
        ]
    requirements.append(Requirement("OVN northd", Status.OK, "follows", why))
    if run([*base, "--wait=hv", "sync"], check=False, timeout=20).returncode != 0:
        cure = f"{SETUP} With several hypervisors: look for one that is gone in 'ovn-sbctl show'."
        requirements.append(
            Requirement("OVN controller", Status.FAIL, "is not up to date (or one of several is not)", why, cure)
        )
    else:
        requirements.append(Requirement("OVN controller", Status.OK, "follows", why))
    if settings.EXTERNAL_SWITCH not in said.stdout.split():
        requirements.append(
            Requirement(
                "external switch",
                Status.FAIL,
                "missing",
                "Labs reach the outside through it, and are reached through it.",
                SETUP,
            )
        )
    return requirements


@named("external bridge", "The host reaches labs through it.")
def bridge(host: Host) -> list[Requirement]:
    """Whether the external bridge has its address, and whether its packets get out."""
    name = f"bridge {settings.BRIDGE}"
    why = "The host reaches labs through it, and labs reach the outside."
    address, prefix = host.facts.bridge_address, host.facts.external_network.prefixlen
    if trouble := fabric.bridge_trouble(address, prefix):
        return [Requirement(name, Status.FAIL, trouble, why, SETUP)]
    requirements = [Requirement(name, Status.OK, f"{address}/{prefix}", why)]
    taken = subnet.collision(host.facts.external_cidr, subnet.used_here(settings.BRIDGE))
    if taken is not None:
        detail = f"{host.facts.external_cidr} is also in use elsewhere: {taken.how}"
        cure = "Remove that, or choose another subnet: 'sudo winlab host teardown', then 'sudo winlab host setup'."
        requirements.append(
            Requirement(
                "external subnet",
                Status.WARN,
                detail,
                "winlab can't distinguish two networks with the same addresses.",
                cure,
            )
        )
    return [*requirements, _way_out(host)]


def _way_out(host: Host) -> Requirement:
    why = "Without it nodes reach no registry and no name server."
    if firewall.FORWARD.read_text(encoding="ascii").strip() != "1":
        return Requirement("internet access", Status.FAIL, "net.ipv4.ip_forward is off", why, SETUP)
    known = host.facts
    if trouble := firewall.table_trouble(known):
        why = "Without it nodes reach nothing outside, and guests reach the services of this host."
        return Requirement(
            "internet access", Status.FAIL, f"the firewall table 'inet {firewall.TABLE}' {trouble}", why, SETUP
        )
    if os.geteuid() != 0:
        detail = "winlab's firewall table is there; its rules are not known without root: 'sudo winlab doctor'"
        return Requirement("internet access", Status.OK, detail, why)
    closed = [item for item in firewall.found_firewalls() if not firewall.entry_there(item)]
    if closed:
        detail = f"another firewall drops the labs' packets: {', '.join(closed)}"
        return Requirement("internet access", Status.FAIL, detail, why, SETUP)
    foreign = firewall.dropping_chains(run(["nft", "-j", "list", "chains"], check=False, timeout=20).stdout)
    if foreign:
        detail = f"these chains drop forwarded packets and may drop the labs' packets, too: {', '.join(foreign)}"
        cure = f"Accept packets from and to '{settings.BRIDGE}' in them."
        return Requirement("internet access", Status.WARN, detail, why, cure)
    return Requirement("internet access", Status.OK, "NAT is on", why)


def judge_uplinks(mtus: dict[str, int]) -> Requirement:
    """The result for the interfaces that lead out, by their MTUs."""
    why = "Larger packets of nodes are lost where a router on the way does not report it: downloads hang."
    small = {name: mtu for name, mtu in mtus.items() if mtu < USUAL_MTU}
    if not small:
        return Requirement("uplink", Status.OK, ", ".join(mtus) or "no route by a gateway is known", why)
    detail = ", ".join(f"{name} takes packets of {mtu} bytes" for name, mtu in small.items())
    cure = f"Make labs with --set network.mtu={max(min(small.values()), LEAST_MTU)}, if their downloads hang."
    return Requirement("uplink", Status.WARN, f"{detail}, nodes send {USUAL_MTU}", why, cure)


@named("uplink", "Nodes reach the outside through it.")
def uplink(_host: Host) -> list[Requirement]:
    """Whether what leads out takes packets as large as nodes send."""
    return [judge_uplinks(bridges.uplinks())]


def judge_resolvers(recorded: list[str], now: list[str]) -> Requirement:
    """The result for the name servers that guests get."""
    why = "Nodes are given the host's name servers, as setup found them."
    if recorded == now:
        return Requirement("name servers", Status.OK, ", ".join(now), why)
    detail = f"recorded {', '.join(recorded)}; now {', '.join(now)}"
    return Requirement("name servers", Status.WARN, detail, why, f"{SETUP} Existing labs keep the old ones.")


@named("host facts", "Plans are made from them.")
def recorded(host: Host) -> list[Requirement]:
    """Whether setup was run, and whether its findings still hold."""
    why = "Plans are made from what 'winlab host setup' recorded."
    if not host.facts.recorded:
        return [Requirement("host facts", Status.FAIL, "'winlab host setup' was not run on this host", why, SETUP)]
    found = Requirement("host facts", Status.OK, str(settings.HOST_FILE), why)
    if host.facts.joined:
        return [found]  # nodes get the name servers of the site's first host
    return [
        found,
        judge_resolvers(host.facts.resolvers, facts.find_resolvers(otherwise=host.facts.resolvers)),
    ]


CHECKS = (recorded, group, libvirt, clones, ovs, ovn, site, bridge, uplink)
