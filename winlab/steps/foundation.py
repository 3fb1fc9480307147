"""The steps that the rest of a lab needs: its credentials and its network."""

from __future__ import annotations

from winlab.adapters.overlay import ovn
from winlab.adapters.vm import domains
from winlab.design.render.topology import topology
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ConflictError
from winlab.events import Progress
from winlab.steps.states import CREDENTIALS, NETWORK


def steps(run: Run) -> list[Step]:
    """The steps that make the credentials and the network."""
    plan, folder = run.plan, run.folder

    def make_credentials(progress: Progress) -> None:
        progress.say("making keys, passwords and certificates")
        if not folder.credentials_fit(plan) and domains.machines(run.conn, plan.lab):
            raise ConflictError(
                f"The lab '{plan.lab}' has machines, and this account has no credentials for them.",
                why="Another account made the lab, or its folder was lost.",
                cure=f"Use that account; or run 'winlab destroy --lab {plan.lab}' and create it again.",
            )
        folder.ensure_credentials(plan)

    def make_network(progress: Progress) -> None:
        progress.say(f"switch, router, DHCP, DNS and NAT for {plan.network.cidr}")
        with ovn.connect() as northbound:
            northbound.apply(topology(plan))

    def network_is_made() -> bool:
        with ovn.connect() as northbound:
            return northbound.lab_plan(plan.lab) == plan.digest

    return [
        Step(CREDENTIALS(run.lab), make_credentials, lambda: folder.has_credentials_for(plan), usual=2),
        Step(NETWORK(run.lab), make_network, network_is_made, usual=1),
    ]
