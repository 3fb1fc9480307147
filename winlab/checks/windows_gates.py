"""What Windows nodes report over a login: services, and HNS on real Windows."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from winlab import documents
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed
from winlab.design.contract.on_both import ServiceFacts
from winlab.design.contract.on_windows import WindowsFacts, WindowsStatus
from winlab.design.plan.tags import Tag

Answer = TypeVar("Answer")
Answers = Mapping[str, Answer | str]  # by node: its report, or why there is none
# Get-HnsNetwork is in the module HostNetworkingService, part of the feature Containers
KERNEL_SCRIPT = """\
$ErrorActionPreference = 'SilentlyContinue'
$ProgressPreference = 'SilentlyContinue'
$networks = @(Get-HnsNetwork | ForEach-Object { @{ name = [string]$_.Name; type = [string]$_.Type } })
@{
    hns = [string](Get-Service -Name hns).Status
    kubelets = @(Get-Process -Name kubelet).Count
    proxies = @(Get-Process -Name kube-proxy).Count
    networks = $networks
} | ConvertTo-Json -Compress -Depth 3
"""
POD_NETWORKS = ("overlay", "l2bridge")  # types of HNS networks for pods


def status(access: Access, tag: Tag) -> WindowsFacts:
    """The report of winlab's status script on a node.

    :raises GuestError: the node can't be reached, or the script failed.
    """
    return access.script(tag, WindowsStatus())


def kernel(access: Access, tag: Tag) -> dict[str, Any]:
    """What only real Windows reports: HNS, and the number of kubelets.

    :raises GuestError: the node can't be reached.
    :raises CheckFailed: its answer can't be parsed.
    """
    encoded = base64.b64encode(KERNEL_SCRIPT.encode("utf-16-le")).decode()
    output = access.execute(tag, ["powershell.exe", "-NoProfile", "-NonInteractive", "-EncodedCommand", encoded])
    try:
        report = documents.from_json(output.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise CheckFailed(f"PowerShell printed: {output.strip()[:200] or 'nothing'}") from error
    return dict(report)


def services(answers: Answers[WindowsFacts]) -> str:
    """containerd and the kubelet run as services on every Windows node.

    :raises CheckFailed: on at least one they don't.
    """
    return _each(answers, lambda facts: _running(containerd=facts.containerd, kubelet=facts.kubelet))


def proxy(answers: Answers[WindowsFacts]) -> str:
    """kube-proxy runs as a service on every Windows node, for the existing network of HNS.

    :raises CheckFailed: on at least one it doesn't.
    """

    def check(facts: WindowsFacts) -> str:
        if facts.proxy.stale:
            raise CheckFailed("its network was created again after kube-proxy started: 'winlab repair' starts it again")
        return _running(proxy=facts.proxy)

    return _each(answers, check)


def network(answers: Answers[dict[str, Any]]) -> str:
    """Every Windows node has HNS, a network for pods in it, one kubelet and at most one kube-proxy.

    :raises CheckFailed: at least one does not.
    """

    def check(report: dict[str, Any]) -> str:
        if report.get("hns") != "Running":
            raise CheckFailed(f"the service hns is {report.get('hns') or 'absent'}")
        if report.get("kubelets") != 1 or report.get("proxies", 0) > 1:
            raise CheckFailed(f"{report.get('kubelets')} kubelets and {report.get('proxies')} kube-proxies run")
        networks = report.get("networks") or []
        carrying = [f"{item['name']} ({item['type']})" for item in networks if item["type"].lower() in POD_NETWORKS]
        if not carrying:
            raise CheckFailed(f"HNS has no network for pods, only {[item['name'] for item in networks]}")
        return ", ".join(carrying)

    return _each(answers, check)


def _running(**services: ServiceFacts) -> str:
    bad = [f"the service {name} is {facts.service}" for name, facts in services.items() if facts.service != "running"]
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"{' and '.join(services)} run"


def _each(answers: Answers[Answer], check: Callable[[Answer], str]) -> str:
    seen, failures = [], []
    for node, answer in answers.items():
        try:
            if isinstance(answer, str):
                raise CheckFailed(answer)
            seen.append(f"{node}: {check(answer)}")
        except CheckFailed as failed:
            failures.append(f"{node}: {failed}")
    if failures or not seen:
        raise CheckFailed("; ".join(failures) or "no Windows node was checked")
    return "; ".join(seen)
