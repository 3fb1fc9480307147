"""Another administrator of a kubeadm cluster, in place of the one that it has.

Kubernetes can't take back a certificate. But the group in admin.conf has its rights only by the ClusterRoleBinding
kubeadm:cluster-admins (kubeadm since 1.29), which is given to another group here. The binding keeps its name: kubeadm
makes one for its own group if it finds none (k8s.io/kubernetes, cmd/kubeadm/app/phases/kubeconfig,
EnsureAdminClusterRoleBinding).
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube import kubeconfig, reduced, signing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.reduced import Identity
from winlab.design.plan.node_plan import LinuxNode
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps import controllers
from winlab.steps.signed import SILENCE, await_certificate
from winlab.steps.states import ADMINISTRATOR

GROUP = "kubeadm:cluster-admins"  # kubeadm's own, and the name of the binding
USER = "kubernetes-admin"  # as kubeadm calls it
OURS = "winlab:"  # begins the names of groups that winlab makes
ANYTHING = ("auth", "can-i", "*", "*", "--all-namespaces")
REFUSED = ("(Forbidden)", "(Unauthorized)")
# $0 is the file. It is never readable by others, and always whole
WRITE = 'umask 077 && mkdir -p "${0%/*}" && cat >"$0.winlab-new" && sync && mv "$0.winlab-new" "$0"'


def renew(run: Run, fresh: LabFolder, after: Iterable[State]) -> Step:
    """The step that makes another administrator; the old one has no rights afterwards.

    :param fresh: gets the kubeconfig.
    """

    def work(progress: Progress) -> None:
        old = Kubectl.of(run.folder)
        held = reduced.own_identity(kubeconfig.read(run.folder))
        group = f"{OURS}{secrets.token_hex(8)}"  # not by the lab's name: a later copy may have the same
        progress.say("the cluster signs a certificate")
        made = _signed(run, old, held, group, progress)
        subjects = _subjects(old)
        old.apply([_binding([*subjects, _subject(group)])])
        plan = run.plan
        own = kubeconfig.for_lab(made, plan.lab, plan.cluster.external, plan.network.external_cidr)
        fresh.write(fresh.kubeconfig, own)
        new = Kubectl(old.program, fresh.kubeconfig)
        _await_rights(run, new, progress)
        for node in plan.linux_nodes():
            if node.role == "controller":
                progress.say(f"{run.plan.cluster.distribution.admin_file} of {node.name}")
                with run.node(node) as there:
                    _replace(run, node, there, made)
        former = groups(held)
        new.apply([_binding([*(one for one in subjects if one.get("name") not in former), _subject(group)])])
        _await_refusal(run, old, former, progress)

    return Step(ADMINISTRATOR(run.lab), work, lambda: False, after, usual=run.pace.usual(8))


def hand_over(run: Run, first: LinuxNode, there: NodeScripts) -> None:
    """Give a further controller the cluster's admin.conf, before it joins, if kubeadm's own group has no rights.

    kubeadm would write one of that group, and could do nothing with it. It uses one that it finds.
    """
    if GROUP in groups(reduced.own_identity(kubeconfig.read(run.folder))):
        return
    with run.node(first) as other:
        text = other.execute(["sudo", "cat", run.plan.cluster.distribution.admin_file])
    _write(run, there, text)


def groups(identity: Identity) -> frozenset[str]:
    """The groups that an administrator's certificate names."""
    certificate = x509.load_pem_x509_certificates(base64.b64decode(identity.certificate))[0]
    names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return frozenset(str(one.value) for one in names)


def _signed(run: Run, kubectl: Kubectl, held: Identity, group: str, progress: Progress) -> Identity:
    """An administrator's identity in a group, signed by the cluster. Its key never leaves this host unencrypted."""
    signer, usages = "kubernetes.io/kube-apiserver-client", ("client auth",)
    asked = signing.request(kubectl, "winlab-administrator", USER, group, signer, usages, {})
    try:
        signing.approve(kubectl, asked.name)
        certificate = await_certificate(run, kubectl, asked, "its new administrator", progress)
    finally:
        with suppress(ClusterError):  # it goes by itself after an hour
            signing.delete(kubectl, asked.name)
    encoded = (base64.b64encode(pem.encode()).decode() for pem in (certificate, asked.key_pem))
    return Identity(held.authority, *encoded)


def _await_rights(run: Run, kubectl: Kubectl, progress: Progress) -> None:
    def look() -> Met[None] | Waiting:
        try:
            kubectl.run(*ANYTHING)
        except ClusterError as error:
            return Waiting("waiting for the new administrator's rights", error.why)
        return Met(None)

    def give_up(seen: Waiting) -> ClusterError:
        return ClusterError(
            "The new administrator of the cluster has no rights.",
            why=str(seen.sign),
            cure="Run the same command again.",
        )

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(SILENCE))


def _await_refusal(run: Run, kubectl: Kubectl, former: frozenset[str], progress: Progress) -> None:
    """Wait until the old administrator has no rights any more.

    :raises ClusterError: it keeps them.
    """

    def look() -> Met[None] | Waiting:
        try:
            kubectl.run("get", "--raw=/api/v1/nodes?limit=1")
        except ClusterError as error:
            if any(word in error.why for word in REFUSED):
                return Met(None)
            return Waiting("waiting for the API server to refuse the old administrator", error.why)
        return Waiting("waiting for the API server to refuse the old administrator")

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            "The cluster does not refuse its old administrator.",
            why=f"The certificate's groups are {', '.join(sorted(former)) or 'none'}. Something other than the binding "
            f"'{GROUP}' gives them rights, or the user '{USER}'.",
            cure="Remove such bindings from the lab that is copied, save it again, and copy that.",
            evidence="winlab kubectl -- get clusterrolebindings --output wide",
        )

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(SILENCE))


def _subjects(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Who has the binding now."""
    found = kubectl.find("clusterrolebinding", GROUP) or {}
    return [dict(one) for one in found.get("subjects") or []]


def _subject(group: str) -> dict[str, Any]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}


def _binding(subjects: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": GROUP},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects,
    }


def _replace(run: Run, node: LinuxNode, there: NodeScripts, made: Identity) -> None:
    """Give a controller's admin.conf the new administrator; everything else in it stays."""
    distribution = run.plan.cluster.distribution
    text = there.execute(["sudo", "cat", distribution.admin_file])
    had = reduced.identity(text, node.name, distribution)
    _write(run, there, text.replace(had.certificate, made.certificate).replace(had.key, made.key))


def _write(run: Run, there: NodeScripts, text: str) -> None:
    """Write a controller's admin.conf. Its text goes in on the standard input."""
    there.execute(["sudo", "sh", "-c", WRITE, run.plan.cluster.distribution.admin_file], f"{text.rstrip()}\n".encode())
