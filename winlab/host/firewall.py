"""Forwarding and address translation for the external bridge, alongside any firewall of the host.

winlab has its own nftables table. But a packet must pass *every* table: an accept in ours does not undo a drop in
another one. If Docker, ufw or firewalld filter forwarded packets, setup therefore adds an entry there as well, in
the way that each of them expects.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from winlab import settings
from winlab.design.plan.addresses import OPEN_MAC
from winlab.design.plan.facts import HostFacts, Way
from winlab.design.render.topology import LINK_LOCAL
from winlab.errors import HostError
from winlab.events import Progress
from winlab.host import bridges, facts, routes
from winlab.host.changes import Firewall, Record, alone
from winlab.run import find, run
from winlab.settings import BRIDGE

TABLE = "winlab"
TAG = "winlab"
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
# On the userspace datapath the kernel's own network stack sees the guests' frames as well. It would answer their ARP
# requests for any address of the host, even one that a lab uses inside; 1 means: only on the address's own interface.
ARP_IGNORE = Path("/proc/sys/net/ipv4/conf/all/arp_ignore")
LEGACY_TABLES = Path("/proc/net/ip_tables_names")

GENEVE = 6081  # the port of tunnels, RFC 8926
HEADERS = 40  # bytes of IPv4 and TCP before a segment
# Packets of a router whose MAC begins as those of open labs do
_OPEN = f"ether saddr & ff:ff:ff:00:00:00 == {OPEN_MAC}:00:00:00"
# Nothing has this address and port. The table's rule for them shows any user that the table exists: sending fails.
SIGN = ("127.119.105.110", 9)
# What every version of nft lists alike, in the order of the rules: names, hooks, policies, what is matched, verdicts
_OUTLINE = re.compile(
    r'"[^"]*"|!=|\d+(?:\.\d+){3}(?:/\d+)?|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|\bct \w+ [\w,]+'
    r"|\b(?:chain|hook|policy|jump|dport) \w+|\b(?:accept|drop|masquerade)\b"
)
# On the userspace datapath the kernel sees frames on the guests' own network devices, before OVS and OVN do
_TAPS = """\
	chain taps {
		type filter hook prerouting priority raw; policy accept;
		iifname "vnet*" counter drop comment "guests are reached through Open vSwitch alone"
	}

"""

RULES = (
    ("-i", BRIDGE, "-m", "comment", "--comment", TAG, "-j", "ACCEPT"),
    (
        "-o",
        BRIDGE,
        "-m",
        "conntrack",
        "--ctstate",
        "RELATED,ESTABLISHED",
        *("-m", "comment", "--comment", TAG),
        "-j",
        "ACCEPT",
    ),
)


def ruleset(
    cidr: str,
    datapath: str,
    uplinks: Sequence[str] = (),
    tunnel_mtu: int | None = None,
    ways: Mapping[str, Way] = MappingProxyType({}),
) -> str:
    """The text of winlab's own table. Loading it replaces the table in one transaction.

    Guests get out with the host's address. From elsewhere only replies get in, so only this host reaches a lab. Labs
    reach the host's services, containers and virtual machines only if their spec says so; OVN's router then sends with
    a MAC that guests can't take.

    :param uplinks: the interfaces that lead out though they are named like a local bridge.
    :param tunnel_mtu: the largest packet inside tunnels to the site's other hosts, in bytes; None: there are none.
    :param ways: the networks of labs that external clusters reach without translation.
    """
    out = "".join(
        f'\t\tiifname "{BRIDGE}" oifname "{name}" counter accept comment "{name} leads on"\n' for name in uplinks
    )
    kept = "".join(
        f'\t\tiifname "{BRIDGE}" oifname "{name}" oifname != "{BRIDGE}" counter drop comment "closed to labs: {name}"\n'
        for name in bridges.LOCAL
    )
    routed = routes.rules(ways)
    to_host, through = _among_hosts(tunnel_mtu) if tunnel_mtu else ("", "")
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {cidr} oifname != "{BRIDGE}" counter masquerade comment "labs go out as the host"
	}}

{_TAPS if datapath == "netdev" else ""}	chain input {{
		type filter hook input priority filter; policy accept;
		iifname "{BRIDGE}" jump guests
	}}

	chain guests {{
{to_host}		ct state established,related counter accept
		meta l4proto {{ icmp, ipv6-icmp }} counter accept
		meta l4proto {{ tcp, udp }} th dport 53 counter accept comment "a name server on this host"
		{_OPEN} counter accept comment "labs whose network.reach is all"
		counter drop comment "labs reach no service of this host"
	}}

	chain forward {{
		type filter hook forward priority filter; policy accept;
{through}		iifname "{BRIDGE}" meta l4proto {{ tcp, udp }} th dport 53 counter accept comment "name servers"
		iifname "{BRIDGE}" ip daddr {LINK_LOCAL} counter drop comment "labs reach no metadata service"
{routed}		iifname "{BRIDGE}" {_OPEN} counter accept comment "containers, for labs whose network.reach is all"
		iifname "{BRIDGE}" ct direction original ct status dnat counter drop comment "labs reach no container's port"
{out}{kept}		iifname "{BRIDGE}" counter accept
		oifname "{BRIDGE}" ct state established,related counter accept
		oifname "{BRIDGE}" counter drop comment "labs are reached from this host only"
	}}

	chain sign {{
		type filter hook output priority filter; policy accept;
		ip daddr {SIGN[0]} udp dport {SIGN[1]} counter drop comment "shows to any user that the table is there"
	}}
}}
"""


def _among_hosts(tunnel_mtu: int) -> tuple[str, str]:
    """More rules for a host of a site of several: for packets to it, and through it.

    Hosts take each other's tunnel packets from any network card: a node could send some to all labs. The external
    bridge takes no larger packets than tunnels, so TCP of labs that do should not depend on messages about that.
    """
    segment = tunnel_mtu - HEADERS
    drop = 'counter drop comment "tunnels are between hosts alone"'
    # both ways: what each side sends depends on what the other one said
    clamp = "".join(
        f'\t\t{way} "{BRIDGE}" tcp flags & (syn | rst) == syn tcp option maxseg size > {segment} '
        f'tcp option maxseg size set {segment} comment "segments of {segment} bytes pass tunnels"\n'
        for way in ("iifname", "oifname")
    )
    return (
        f"\t\tudp dport {GENEVE} {drop}\n",
        f'\t\tiifname "{BRIDGE}" udp dport {GENEVE} {drop}\n{clamp}',
    )


def table_trouble(known: HostFacts) -> str:
    """What is wrong with winlab's table, as the end of a sentence; empty if nothing is.

    Who may not read the rules sees only whether the table is there.
    """
    said = run(["nft", "list", "table", "inet", TABLE], check=False, timeout=20)
    if said.returncode != 0:
        return "" if "not permitted" in said.stderr and _sign_seen() else "is missing or out of date"
    return (
        "" if _OUTLINE.findall(said.stdout) == _OUTLINE.findall(_wanted(known)) else "has other rules than setup writes"
    )


def _wanted(known: HostFacts) -> str:
    return ruleset(known.external_cidr, known.datapath, bridges.leading_on(), known.tunnel_mtu, known.ways)


def _sign_seen() -> bool:
    """Whether the kernel refuses to send where winlab's table forbids it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.sendto(b"", SIGN)
        except PermissionError:
            return True
        except OSError:  # no loopback device that is up, say
            return False
    return False


def trouble() -> str:
    """As :func:`table_trouble`, for what setup recorded; empty if the labs' network is another host's.

    :raises UsageError: the recorded facts can't be read.
    """
    if not settings.network_is_here():
        return ""
    return table_trouble(facts.read_facts())


def restore(progress: Progress) -> None:
    """Do what setup does for the firewall. Needs root.

    :raises HostError: the kernel refuses the table.
    """
    with alone(progress):
        ensure_forwarding(facts.read_facts(), Record(), progress)


def require(progress: Progress) -> None:
    """Check, before guests run, that the table is there and as setup writes it; as root, put it back.

    :raises HostError: it is not, and another user runs this.
    """
    wrong = trouble()
    if wrong and os.geteuid() == 0:
        restore(progress)
    elif wrong:
        raise HostError(
            f"The firewall table 'inet {TABLE}', which keeps guests away from this host, {wrong}.",
            why="Another program removed it, such as 'systemctl reload nftables', or an earlier winlab wrote it.",
            cure="Run 'sudo winlab host setup', then the same command again.",
        )


def ensure_forwarding(known: HostFacts, record: Record, progress: Progress) -> None:
    """Let packets of the external subnet through and out, and those of routed labs.

    :raises HostError: the kernel does not support nftables.
    """
    _switch_on(FORWARD, "IPv4 forwarding", record, progress)
    if known.datapath == "netdev":
        _switch_on(ARP_IGNORE, "arp_ignore, for the userspace datapath", record, progress)
    if table_trouble(known):
        progress.say(f"address translation for {known.external_cidr}")
        record.mark("table")
        done = run(["nft", "-f", "-"], stdin=_wanted(known), check=False, timeout=20)
        if done.returncode != 0:
            raise HostError(
                "The kernel refused winlab's firewall table.",
                why=done.stderr.strip(),
                cure="winlab needs nftables with nat and conntrack; use a kernel that has them.",
            )
    for firewall in found_firewalls():
        if not entry_there(firewall):
            progress.say(f"an entry for {BRIDGE} in the host's firewall ({firewall})")
            if firewall not in record.changes.firewalls:
                record.changes.firewalls = [*record.changes.firewalls, firewall]
                record.save()
            _enter(firewall)
        routes.enter(known.ways, firewall, _CHAINS.get(firewall), progress)


def _switch_on(path: Path, what: str, record: Record, progress: Progress) -> None:
    before = path.read_text(encoding="ascii").strip()
    if before == "0":
        progress.say(f"switching on {what}")
        record.changes.sysctl.setdefault(str(path), before)
        record.save()
        path.write_text("1\n", encoding="ascii")


def withdraw_ways(ways: Mapping[str, Way]) -> None:
    """Remove the entries of labs that are no longer routed from the host's other firewalls."""
    for firewall in found_firewalls():
        routes.withdraw(ways, firewall, _CHAINS.get(firewall))


def undo_forwarding(known: HostFacts, record: Record, progress: Progress) -> None:
    """Remove the entries and the table that setup made, and restore the forwarding setting."""
    for firewall in record.changes.firewalls:
        progress.say(f"removing the entry for {BRIDGE} from the host's firewall ({firewall})")
        _withdraw(firewall)
        routes.withdraw(known.ways, firewall, _CHAINS.get(firewall))
    record.changes.firewalls = []
    if record.changes.table:
        progress.say(f"removing the firewall table {TABLE}")
        run(["nft", "delete", "table", "inet", TABLE], check=False, timeout=20)
        record.changes.table = False
    for path, value in record.changes.sysctl.items():
        Path(path).write_text(f"{value}\n", encoding="ascii")
    record.changes.sysctl = {}
    record.save()


def found_firewalls() -> list[Firewall]:
    """The other firewalls of this host that currently filter forwarded packets."""
    firewalls: list[Firewall] = []
    if _firewalld_runs():
        firewalls.append("firewalld")
    if _ufw_active():
        firewalls.append("ufw")
        return firewalls  # ufw owns the FORWARD chain's policy
    if _chain("iptables", "DOCKER-USER"):
        firewalls.append("docker-user")
    elif "-P FORWARD DROP" in _chain("iptables", "FORWARD"):
        firewalls.append("forward")
    if "-P FORWARD DROP" in _chain("iptables-legacy", "FORWARD"):
        firewalls.append("forward-legacy")
    return firewalls


def _chain(program: str, chain: str) -> str:
    """The rules of a chain of iptables' filter table, or nothing. Does not create the table as a side effect."""
    if find(program) is None:
        return ""
    if program == "iptables-legacy" or "legacy" in run([program, "--version"], check=False, timeout=20).stdout:
        try:
            there = "filter" in LEGACY_TABLES.read_text(encoding="ascii").split()
        except OSError:
            there = False
    else:
        there = run(["nft", "list", "table", "ip", "filter"], check=False, timeout=20).returncode == 0
    if not there:
        return ""
    return run([program, "-w", "10", "-S", chain], check=False, timeout=30).stdout


def _firewalld_runs() -> bool:
    return (
        find("firewall-cmd") is not None and run(["firewall-cmd", "--state"], check=False, timeout=30).returncode == 0
    )


def _ufw_active() -> bool:
    return find("ufw") is not None and "Status: active" in run(["ufw", "status"], check=False, timeout=30).stdout


_CHAINS = {
    "docker-user": ("iptables", "DOCKER-USER"),
    "forward": ("iptables", "FORWARD"),
    "forward-legacy": ("iptables-legacy", "FORWARD"),
}

# ufw lets replies through by itself (before.rules), so one rule is enough.
UFW_RULE = ("allow", "in", "on", BRIDGE)

# A zone of its own with firewalld's default target: guests can't open connections to the host. The
# policy lets them out (man firewalld.policies; masquerading is done by our own table.)
FIREWALLD_MAKE = (
    ("--permanent", f"--new-zone={TAG}"),
    ("--permanent", f"--zone={TAG}", f"--add-interface={BRIDGE}"),
    ("--permanent", f"--new-policy={TAG}-out"),
    ("--permanent", f"--policy={TAG}-out", f"--add-ingress-zone={TAG}"),
    ("--permanent", f"--policy={TAG}-out", "--add-egress-zone=ANY"),
    ("--permanent", f"--policy={TAG}-out", "--set-target=ACCEPT"),
    ("--reload",),
)
FIREWALLD_UNDO = (
    ("--permanent", f"--delete-policy={TAG}-out"),
    ("--permanent", f"--delete-zone={TAG}"),
    ("--reload",),
)


def dropping_chains(text: str) -> list[str]:
    """The base chains in ``nft -j list chains`` that drop forwarded packets by default and are not otherwise known.

    iptables' own tables are left out; :func:`found_firewalls` knows them.
    """
    try:
        items = json.loads(text)["nftables"]
    except (ValueError, KeyError):
        return []
    chains = [item["chain"] for item in items if "chain" in item]
    return [
        f"{chain['family']} {chain['table']} {chain['name']}"
        for chain in chains
        if chain.get("hook") == "forward" and chain.get("policy") == "drop"
        if chain["table"] not in {"filter", "firewalld"} and chain["family"] in {"ip", "inet"}
    ]


def entry_there(firewall: Firewall) -> bool:
    """Whether winlab's entry is in *firewall*."""
    if firewall == "firewalld":
        return TAG in run(["firewall-cmd", "--get-zones"], check=False, timeout=30).stdout.split()
    if firewall == "ufw":
        return BRIDGE in run(["ufw", "status"], check=False, timeout=30).stdout
    program, chain = _CHAINS[firewall]
    checks = [run([program, "-w", "10", "-C", chain, *rule], check=False, timeout=30) for rule in RULES]
    return all(done.returncode == 0 for done in checks)


def _enter(firewall: Firewall) -> None:
    if firewall == "firewalld":
        for words in FIREWALLD_MAKE:
            # Finishes a zone that an earlier, interrupted run left incomplete.
            run(["firewall-cmd", *words], check=words == ("--reload",), timeout=60)
    elif firewall == "ufw":
        run(["ufw", "route", *UFW_RULE, "comment", TAG], timeout=60)
    else:
        program, chain = _CHAINS[firewall]
        for rule in RULES:
            if run([program, "-w", "10", "-C", chain, *rule], check=False, timeout=30).returncode != 0:
                run([program, "-w", "10", "-I", chain, *rule], timeout=30)


def _withdraw(firewall: Firewall) -> None:
    if firewall == "firewalld":
        for words in FIREWALLD_UNDO:
            run(["firewall-cmd", *words], check=False, timeout=60)
    elif firewall == "ufw":
        run(["ufw", "route", "delete", *UFW_RULE], check=False, timeout=60)
    else:
        program, chain = _CHAINS[firewall]
        for rule in RULES:
            # As often as it occurs: an interrupted run may have added it twice.
            while run([program, "-w", "10", "-D", chain, *rule], check=False, timeout=30).returncode == 0:
                pass
