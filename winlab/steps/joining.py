"""What nodes need of their cluster, its own or an external one; and this host's access to an external cluster."""

from __future__ import annotations

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube import authority as access
from winlab.adapters.kube import identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.cni.model import SERVER_NAME
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ClusterError, NotFoundError
from winlab.events import Progress
from winlab.steps.states import API, KUBECTL

PROXY_TOKEN_LIFE = "8760h"  # noqa: S105 - a year: longer than labs live
# A name that the cluster publishes for its API server may be known to the lab's DNS alone. Go programs query with EDNS,
# and OVN's DNS (23.03) leaves such queries to the lab's name servers
HOSTS = 'read -r line && { grep -qxF "$line" /etc/hosts || echo "$line" >>/etc/hosts; }'


def authority(run: Run) -> str:
    """The cluster's CA as PEM, by which nodes recognize the cluster.

    :raises ClusterError: the API server does not answer.
    """
    if run.plan.joins:
        return identity.authorities(Kubectl.of(run.folder)).server
    return access.authority(run.folder.kubeconfig)


def proxy_kubeconfig(run: Run, node: NodePlan) -> str:
    """A kubeconfig with the token of a node's kube-proxy, and no other right.

    :raises ClusterError: the API server refuses the token.
    """
    kubectl, endpoint = Kubectl.of(run.folder), run.plan.cluster.endpoint
    if run.plan.cluster.identifies:  # only some clusters have an account of that name
        token = {"token": identity.proxy_token(kubectl, node.name, PROXY_TOKEN_LIFE)}
        return access.kubeconfig(authority(run), endpoint, "kube-proxy", token, SERVER_NAME)
    account = ("kube-proxy", "--namespace=kube-system", f"--duration={PROXY_TOKEN_LIFE}")
    return access.with_token(authority(run), endpoint, "kube-proxy", kubectl.run("create", "token", *account).strip())


def name_server(run: Run, there: NodeScripts) -> None:
    """Have a Linux node know the API server's name, if an address was given for it."""
    if run.plan.alias is not None:
        name, address = run.plan.alias
        there.execute(["sudo", "sh", "-c", HOSTS], f"{address} {name}\n".encode())


def given_kubeconfig(run: Run, admin: str) -> Step:
    """The step that gives this host access to an external cluster.

    :param admin: that cluster's kubeconfig.
    """

    def work(progress: Progress) -> None:
        if not admin:
            raise NotFoundError(
                f"The kubeconfig of the cluster that the lab '{run.lab}' joined is lost.",
                why=f"'{run.folder.kubeconfig}' does not exist.",
                cure="Run 'winlab join' again, as before: that writes it again.",
            )
        run.folder.write(run.folder.kubeconfig, admin)
        progress.say(f"asking the API server at {run.plan.cluster.external}")
        if not Kubectl.of(run.folder).answers():
            raise ClusterError(
                "The cluster that the lab should join no longer answers.",
                cure="Make sure that it runs, then run the same command again.",
                evidence=f"winlab kubectl --lab {run.plan.lab} -- get --raw=/readyz",
            )

    def done() -> bool:
        kept = run.folder.kubeconfig
        return kept.exists() and kept.read_text() == admin and Kubectl.of(run.folder).answers()

    return Step(API(run.lab), work, done, [KUBECTL(run.lab)], usual=2)
