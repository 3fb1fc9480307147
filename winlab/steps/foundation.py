"""The steps that the rest of a lab needs: its credentials and its network."""

from __future__ import annotations

import ipaddress

from winlab import account, settings
from winlab.adapters.overlay.ovn import Northbound
from winlab.design.render.topology import topology
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ConflictError, HostError
from winlab.events import Progress
from winlab.host import fabric, firewall
from winlab.steps.states import CREDENTIALS, NETWORK

FOLLOW_SECONDS = 60.0  # that OVN's daemons may take on a busy host; they usually take well under one


def steps(run: Run) -> list[Step]:
    """The steps that make the credentials and the network."""
    plan, folder = run.plan, run.folder

    def make_credentials(progress: Progress) -> None:
        progress.say("making keys, passwords and certificates")
        machines = run.machines()
        if not folder.credentials_fit(plan) and not folder.has_credentials_of([one.tag.node for one in machines]):
            if owner := account.others([one.tag.uid for one in machines]):
                raise ConflictError(
                    f"The lab '{plan.lab}' belongs to {owner}, and this account has no credentials for its machines.",
                    cure=f"Give your own lab another name: --lab NAME, or WINLAB_LAB. Or use the account of {owner}.",
                )
            raise ConflictError(
                f"The lab '{plan.lab}' has machines, and this account has no credentials for them.",
                why="Another account made the lab, or its folder was lost.",
                cure=f"Use that account; or run 'winlab destroy --lab {plan.lab}' and create it again.",
            )
        folder.ensure_credentials(plan)

    def make_network(progress: Progress) -> None:
        progress.say(f"switch, router, DHCP, DNS and NAT for {plan.network.cidr}")
        with run.overlay() as northbound:
            if not northbound.has(topology(plan)):
                northbound.apply(topology(plan))
            _require_host_network(run, northbound)
        firewall.require(progress)

    def network_is_made() -> bool:
        with run.overlay() as northbound:
            if not northbound.has(topology(plan)):
                return False
            _require_host_network(run, northbound)
        return not firewall.trouble()

    return [
        Step(CREDENTIALS(run.lab), make_credentials, lambda: folder.has_credentials_for(plan), usual=2),
        Step(NETWORK(run.lab), make_network, network_is_made, usual=1),
    ]


def _require_host_network(run: Run, northbound: Northbound) -> None:
    """Check, before machines boot, that the host reaches labs, and that OVN's daemons apply what was written.

    :raises HostError: the bridge does not have its address, or the daemons don't follow the database.
    """
    net = run.plan.network
    if settings.network_is_here():
        prefix = ipaddress.IPv4Network(net.external_cidr).prefixlen
        if trouble := fabric.bridge_trouble(net.external_gateway, prefix):
            raise HostError(
                f"The bridge '{settings.BRIDGE}', by which this host reaches labs, {trouble}.",
                why="Open vSwitch was restarted, or something removed the address.",
                cure="Run 'sudo winlab host setup', then the same command again.",
            )
    for host in run.plan.hypervisors.values():
        northbound.await_followers(run.pace.silence(FOLLOW_SECONDS), host.chassis)
