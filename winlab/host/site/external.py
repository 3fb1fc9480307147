"""The external network of a site of several hosts: one for all of them, with a way out on each."""

from __future__ import annotations

from collections.abc import Collection

from winlab import files
from winlab.design.plan.addresses import host_addresses
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError
from winlab.events import Progress
from winlab.host import daemons, fabric, firewall, subnet
from winlab.host import external_program as program
from winlab.host.changes import Record
from winlab.run import run
from winlab.settings import BRIDGE

USUAL_MTU = 1500  # bytes, of a bridge and of labs
# Five of these without an answer, and a gateway moves (man ovs-vswitchd.conf.db, BFD). By default it is a second.
BFD_MS = 300
BFD = ("bfd-min-rx", "bfd-min-tx")  # options of NB_Global, man ovn-nb


def assigned(known: HostFacts, chassis: str, there: Collection[str], own: str = "") -> dict[str, str]:
    """The external addresses of the site's other hosts by chassis, with one for *chassis*.

    :param there: the chassis that OVN knows or the list of hypervisors has: if all addresses are taken, those of hosts
        that are gone are free.
    :param own: the address that the host has already; it keeps that if this host has forgotten whose it is.
    :raises HostError: none is free.
    """
    held = known.external_addresses
    if chassis in held:
        return held
    every = host_addresses(known.external_cidr)
    for taken in (held, {name: address for name, address in held.items() if name in there}):
        wanted = (own, *every) if own in every else every
        free = next((address for address in wanted if address not in taken.values()), None)
        if free is not None:
            return {**taken, chassis: free}
    raise HostError(
        f"The site has no address for a further host: it has {len(every) + 1} hosts.",
        why=f"Each host needs one in the external subnet, {known.external_cidr}, that labs do not use.",
        cure="Run 'sudo winlab host teardown' on a host that is not needed, and 'winlab hypervisor remove' for it.",
    )


def check(known: HostFacts) -> None:
    """Check that nothing else on a host that joins uses the site's external subnet.

    :raises ConflictError: something does.
    """
    taken = subnet.collision(known.external_cidr, subnet.used_here(BRIDGE))
    if taken is not None:
        raise ConflictError(
            f"The site's external subnet, {known.external_cidr}, is in use on this host's interface '{taken.device}'.",
            why=f"This host has: {taken.how}. Labs are reached in that subnet.",
            cure="Remove that. Or set the site up again with another one: 'sudo winlab host setup --external-cidr'.",
        )


def own_mac() -> str:
    """The MAC of this host's external bridge."""
    return fabric.vsctl("get", "Interface", BRIDGE, "mac_in_use").stdout.strip().strip('"')


def ensure(known: HostFacts, record: Record, progress: Progress) -> None:
    """Join this host's external bridge to those of the site's other hosts, and keep it so.

    :raises HostError: the kernel refuses the firewall table, or the program does not start.
    """
    firewall.ensure_forwarding(known, record, progress)
    own = known.bridge_address
    prefix = known.external_network.prefixlen
    fabric.ensure_address(own, prefix, progress)
    if known.tunnel_mtu:
        fabric.vsctl("set", "Interface", BRIDGE, f"mtu_request={min(known.tunnel_mtu, USUAL_MTU)}")
    flows = program.flows_for(known.external_gateway, known.gateway_mac, own_mac()) if known.gateway_mac else ""
    record.add("files", str(program.PROGRAM))
    if files.replace_text(program.PROGRAM, program.text(f"{own}/{prefix}", flows), 0o700):
        progress.say(f"joining {BRIDGE} to those of the site's other hosts")
    run([str(program.PROGRAM), "once"], timeout=120)
    if daemons.has_systemd():
        record.add("files", str(program.UNIT))
        if files.replace_text(program.UNIT, program.unit_text()):
            run(["systemctl", "daemon-reload"], timeout=60)
    daemons.ensure("external", record, progress)


def ensure_bfd(record: Record) -> None:
    """Have gateways notice within seconds that another one is gone; a value that someone else set stays."""
    (row,) = fabric.rows(fabric.nbctl("--format=json", "--columns=options", "list", "NB_Global"))
    missing = [name for name in BFD if name not in dict(row["options"][1])]
    if missing:
        record.mark("bfd")
        fabric.nbctl("set", "NB_Global", ".", *(f"options:{name}={BFD_MS}" for name in missing))


def undo(record: Record, progress: Progress) -> None:
    """Separate this host's external bridge from the others, while Open vSwitch and OVN still run."""
    if not program.PROGRAM.exists():
        return
    daemons.stop("external", record, progress)
    program.PID.unlink(missing_ok=True)
    run([str(program.PROGRAM), "undo"], check=False, timeout=120)
    if record.changes.bfd:
        fabric.nbctl("remove", "NB_Global", ".", "options", *BFD, check=False)
        record.changes.bfd = False
        record.save()


def trouble() -> str:
    """What is wrong with the bridge's tunnels, as a sentence; empty if nothing is."""
    if not daemons.external_up():
        return f"The program that joins {BRIDGE} to the other hosts' does not run."
    found = fabric.vsctl("--bare", "--columns=options", "find", "Interface", "type=geneve", "options:key=flow").stdout
    hosts = len([line for line in found.splitlines() if line])
    tunnels = len([name for name in fabric.vsctl("list-ports", BRIDGE).stdout.split() if name.startswith("wl-")])
    return "" if tunnels == hosts else f"{BRIDGE} has tunnels to {tunnels} hosts, and OVN to {hosts}."
