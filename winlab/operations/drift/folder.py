"""The files in the lab's local folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from winlab.engine.run import Run
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject, Tier
from winlab.steps import host_kubectl, payload
from winlab.steps.states import API

ACCESS = ("kubectl", "kubeconfig")  # what this host needs for the cluster, and for nothing else


def credentials(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The credentials, and the files for ssh and WinRM that are made of them."""
    run = subject.run
    if not run.folder.credentials_fit(run.plan):
        action = "can't be made again: the nodes have the keys. Restore it, or destroy the lab and create it again"
        drift = Drift("folder", "", "credentials.json", "of this lab", "missing or of another lab", action, False)
        yield Finding(drift)
        return
    for path, trouble in run.folder.differing(run.plan).items():
        drift = Drift("folder", "", path.name, "as made from the credentials", trouble, "written again", True)
        yield Finding(drift, partial(_write, run))


def _write(run: Run, progress: Progress) -> None:
    progress.say("writing the files for ssh and WinRM")
    if run.folder.credentials_fit(run.plan):  # it never replaces the keys that the nodes have
        run.folder.ensure_credentials(run.plan)


def cluster_access(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The kubeconfig, and the link to kubectl."""
    run = subject.run
    if not subject.cluster:
        return
    if trouble := host_kubectl.trouble(run.folder):
        drift = Drift("folder", "", "kubectl", "as it was obtained", trouble, "linked again", repairable=True)
        yield Finding(drift, partial(payload.link_kubectl, run))
    if trouble := _trouble(run):
        joins = run.plan.joins
        action = "run 'winlab join' again" if joins else "read from the first controller again"
        drift = Drift("folder", "", "kubeconfig", "there", trouble, action, repairable=not joins)
        yield Finding(drift, lab_steps=() if joins else (API,), tier=Tier.ACCESS)


def _trouble(run: Run) -> str:
    """What is wrong with the kubeconfig; empty if nothing is."""
    try:
        mode = run.folder.kubeconfig.stat().st_mode & 0o777
    except OSError:
        return "missing"
    return "" if mode & 0o077 == 0 else f"open to others ({mode:04o})"
