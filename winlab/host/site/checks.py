"""Doctor's checks of a host in a site of several: its tunnels, its certificate, and the way to OVN's databases."""

from __future__ import annotations

import datetime
import os

from winlab.host import daemons
from winlab.host import relay_program as program
from winlab.host.check import SETUP, Host, Requirement, Status, named
from winlab.host.site import certificates, external, join, relay, tunnels
from winlab.host.site.checks_databases import check_databases

WHY_SOUTHBOUND = "OVN's databases on the first host control the network of all hosts of a site."
WHY_CERTIFICATE = "Hosts of a site recognize each other by it."
WHY_TUNNELS = "Nodes on different hosts reach each other through tunnels."
WHY_EXTERNAL = "This host reaches labs whose gateway is on another one."


@named("site", "Hosts of a site share OVN's databases.")
def site(host: Host) -> list[Requirement]:
    """What a host needs that has joined a site, or whose site others have joined; nothing on a single host."""
    if not host.facts.southbound:
        return []
    if os.geteuid() != 0:
        return [Requirement("site", Status.OK, "not known without root: 'sudo winlab doctor'", WHY_SOUTHBOUND)]
    now = datetime.datetime.now(datetime.UTC)
    connected = _controller(host) if host.facts.joined else _relay(host)
    certificate = judge_certificate(relay.text(program.CERTIFICATE), host.facts.joined, now)
    return [connected, certificate, _tunnels(host), _external(), *check_databases(host)]


def _controller(host: Host) -> Requirement:
    if join.is_connected():
        detail = f"the controller is connected to {host.facts.southbound}"
        return Requirement("OVN southbound", Status.OK, detail, WHY_SOUTHBOUND)
    detail = f"the controller is not connected to {host.facts.southbound}"
    cure = f"{SETUP} If that does not help, run 'sudo winlab doctor' on the first host, {host.facts.joined}."
    return Requirement("OVN southbound", Status.FAIL, detail, WHY_SOUTHBOUND, cure)


def _relay(host: Host) -> Requirement:
    address = relay.address_of(host.facts.southbound)
    if daemons.relay_up() and relay.listens(address):
        detail = f"its relay listens on {address}, port {program.PORT}"
        return Requirement("OVN southbound", Status.OK, detail, WHY_SOUTHBOUND)
    detail = f"its relay does not listen on {address}, port {program.PORT}"
    return Requirement("OVN southbound", Status.FAIL, detail, WHY_SOUTHBOUND, f"{SETUP} Its log is {program.LOG}.")


def judge_certificate(certificate: str, joined: str, now: datetime.datetime) -> Requirement:
    """The result for this host's certificate.

    :param joined: the first host, if this host has joined its site; empty: this is the first host.
    """
    cure = f"Run 'sudo winlab host setup{f' --join {joined}' if joined else ''}'; it makes a new one."
    try:
        ends = certificates.ends(certificate)
    except ValueError:
        return Requirement("certificate", Status.FAIL, "missing or malformed", WHY_CERTIFICATE, cure)
    if ends < now:
        return Requirement("certificate", Status.FAIL, f"ended on {ends:%Y-%m-%d}", WHY_CERTIFICATE, cure)
    if certificates.is_due(certificate, now):
        return Requirement("certificate", Status.WARN, f"ends on {ends:%Y-%m-%d}", WHY_CERTIFICATE, cure)
    return Requirement("certificate", Status.OK, f"valid until {ends:%Y-%m-%d}", WHY_CERTIFICATE)


def _external() -> Requirement:
    if wrong := external.trouble():
        return Requirement("external network", Status.FAIL, wrong, WHY_EXTERNAL, SETUP)
    return Requirement("external network", Status.OK, "is joined to those of the other hosts", WHY_EXTERNAL)


def _tunnels(host: Host) -> Requirement:
    address = tunnels.recorded()
    wrong = tunnels.trouble(address, host.facts.datapath) if address else "No address of this host is set for tunnels."
    if wrong:
        cure = "Give this host that address, or another: 'sudo winlab host setup --tunnel-address A'."
        return Requirement("tunnels", Status.FAIL, wrong, WHY_TUNNELS, cure)
    detail = f"{address}, packets of nodes have at most {host.facts.tunnel_mtu} bytes"
    return Requirement("tunnels", Status.OK, detail, WHY_TUNNELS)
