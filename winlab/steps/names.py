"""The step that makes cluster DNS answer for the lab's machines, if some of them are beside the cluster.

Nodes query OVN's DNS for such names. Pods query CoreDNS, which forwards with EDNS, and OVN's DNS (23.03) leaves such
queries to the lab's name servers. The names are therefore in CoreDNS's own configuration, as a separate server after
everything that the distribution wrote. Its plug-in ``reload`` reads them within two minutes. Source:
coredns.io/plugins/hosts.
"""

from __future__ import annotations

import re

import yaml

from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan.model import Plan
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps.states import API, NAMES

MAP = ("configmap", "coredns", "--namespace=kube-system")
FILE = "Corefile"
BEGIN, END = "# winlab: the machines of the lab", "# winlab: end"
OURS = re.compile(rf"\n*^{re.escape(BEGIN)}$.*?^{re.escape(END)}$\n?", re.MULTILINE | re.DOTALL)
TTL = 30  # seconds


def are_wanted(plan: Plan) -> bool:
    """Whether pods need the names: there are machines beside the cluster. An external cluster keeps its own DNS."""
    return bool(plan.beside) and plan.kubernetes is not None and plan.kubernetes.made


def corefile(plan: Plan, text: str) -> str:
    """CoreDNS's configuration with the names of the plan's machines, or without any if none are wanted."""
    rest = OURS.sub("", text).rstrip("\n") + "\n"
    return f"{rest}{block(plan)}" if are_wanted(plan) else rest


def block(plan: Plan) -> str:
    """The server for the lab's domain and for each machine's short name.

    It answers for nodes, too, because all queries for the lab's domain reach it. It forwards what it does not know to
    where the distribution's server forwards. Without that the plug-in would answer SERVFAIL, and musl ends a search
    there: the lab's domain may be among those that pods search.
    """
    zone = plan.network.domain
    rows = "".join(f"        {node.address} {node.name}.{zone} {node.name}\n" for node in plan.nodes)
    zones = " ".join(f"{name}:53" for name in (zone, *(node.name for node in plan.nodes)))
    hosts = f"    hosts {{\n{rows}        ttl {TTL}\n        fallthrough\n    }}\n"
    return f"{BEGIN}\n{zones} {{\n    errors\n{hosts}    forward . /etc/resolv.conf\n}}\n{END}\n"


def are_there(run: Run) -> bool:
    """Whether CoreDNS's configuration has exactly the names that it should.

    :raises WinlabError: the API server does not answer, or CoreDNS has another configuration than the distribution's.
    """
    text = _read(run)
    return text == corefile(run.plan, text)


def steps(run: Run) -> list[Step]:
    """The step, if pods need the names."""
    return [step(run, [API(run.lab)])] if are_wanted(run.plan) else []


def step(run: Run, after: list[State]) -> Step:
    """The step that writes the names, or removes them if none are wanted."""

    def work(progress: Progress) -> None:
        progress.say(f"the names of {len(run.plan.nodes)} machines" if are_wanted(run.plan) else "no names")
        body = yaml.safe_dump({"data": {FILE: corefile(run.plan, _read(run))}})
        Kubectl.of(run.folder).run("patch", *MAP, "--type=merge", "--patch-file=/dev/stdin", stdin=body)

    def done() -> bool:
        try:
            return are_there(run)
        except WinlabError:
            return False

    return Step(NAMES(run.lab), work, done, after, usual=run.pace.usual(2))


def _read(run: Run) -> str:
    data = Kubectl.of(run.folder).get(*MAP).get("data")
    text = data.get(FILE) if isinstance(data, dict) else None
    if not isinstance(text, str):
        writer = run.plan.cluster.distribution.name
        raise ClusterError(f"CoreDNS's ConfigMap has no {FILE}.", cure=f"Restore what {writer} wrote there.")
    return text
