"""How a lab that has only workers joins an external cluster, and leaves it: everything but the steps themselves.

The user's kubeconfig stays on the host: the lab's folder keeps what the chosen context needs, readable by its owner
only. Workers never get it.
"""

from __future__ import annotations

import base64
import shutil
import socket
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from winlab import account, documents, files
from winlab.adapters.kube import endpoint, existing, identity, kubeconfig, shared
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import cni
from winlab.design.catalog import versions
from winlab.design.cni.routed import Routed
from winlab.design.plan import addresses
from winlab.design.plan import make as plans
from winlab.design.plan.existing import ForeignCluster
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.tags import Tag
from winlab.design.render import nodes
from winlab.design.spec import pools
from winlab.design.spec.model import Spec
from winlab.errors import UsageError, WinlabError
from winlab.events import Listener, Note, Progress, Told
from winlab.lab_folder import LabFolder
from winlab.operations import attachment, look, making, planning, recorded
from winlab.operations.carry_out import carry_out, one_step
from winlab.operations.making import Until
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps import sources
from winlab.steps.sources import Origin

LARGEST = 4 << 20  # bytes of a kubeconfig, or of a file that it names
# fields of a spec about controllers, or about what an external cluster decides itself
NOT_OURS = ("controllers", "kubernetes.pod_cidr", "kubernetes.service_cidr")
FILES = {  # a kubeconfig's fields that name files, and the field that holds the same
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
}


@dataclass(frozen=True)
class Joining:
    """A lab that is to join a cluster: its plan, the cluster, and the administrator's kubeconfig for it."""

    planned: Proposal
    cluster: ForeignCluster
    admin: str


def plan(
    spec: Spec,
    lab: str,
    site: Site,
    tell: Listener,
    config: Path,
    *,
    context: str = "",
    server: str = "",
    prefix: str = pools.FIRST,
    origin: Origin | None = None,
) -> Joining:
    """Look at the cluster, and plan workers that can join it. Nothing is touched.

    :param config: a kubeconfig of one of the cluster's administrators.
    :param context: the name of one of its contexts; empty: the current one.
    :param server: ADDRESS:PORT of the API server for nodes; empty: what the cluster publishes, or the kubeconfig names.
    :param prefix: the workers' names, followed by a number.
    :param origin: where kubectl comes from, if this host does not have it.
    :raises UsageError: the workers can't join.
    :raises WinlabError: the cluster can't be inspected.
    """
    plans.check_prefix(prefix)
    check_lab_name(lab)
    admin = chosen(config, context, lab)
    if program := runs(admin):
        tell(Note(lab=lab, text=f"kubectl runs '{program}' as {account.running()}, because the kubeconfig names it."))
    look_now = partial(look_at, site.folder(lab), admin, server, spec, origin or Origin())
    cluster = attachment.located(one_step("look at the cluster", look_now, tell, usual=10), spec)
    own, facts, standing = spec.called(prefix), site.host_facts, recorded.standing(site.folder(lab))
    planned = planning.make(own, lab, facts, Told(tell, "plan"), existing=cluster, standing=standing, site=site)
    there = [machine.tag.node for machine in look.machines(lab, site)]
    check(planned.plan, cluster, there)
    attachment.require(planned.plan, cluster, there)
    return Joining(planned, cluster, admin)


def join(
    joining: Joining,
    site: Site,
    tell: Listener,
    *,
    until: Until = "cluster",
    origin: Origin | None = None,
    consent: bool = False,
) -> None:
    """Create the lab and join its workers to the cluster, or resume.

    :raises WinlabError: as :func:`winlab.operations.create.create`.
    """
    planned = joining.planned
    for note in notes(planned.plan, joining.cluster):
        tell(Note(lab=planned.plan.lab, text=note, repeats=True))
    made = making.prepare("join", planned, site, tell, until=until, origin=origin, consent=consent, admin=joining.admin)
    carry_out(made.new_lab(), site, tell)


def make_spec(
    workers: int,
    changes: Sequence[str] = (),
    *,
    os: str | None = None,
    iso: str | None = None,
    rehearse: bool = False,
    allow: Sequence[str | Path] = (),
) -> Spec:
    """The spec of a lab of workers, without what the external cluster decides.

    :param workers: how many.
    :param changes: ``path=value``, as ``--set`` takes them.
    :param allow: folders into which links below the folders that the changes name may lead.
    :raises UsageError: a change is not for such a lab, or the spec is not valid.
    """
    check_changes(changes)
    return Spec.load(f"1-{workers}-1", changes, os=os, iso=iso, rehearse=rehearse, allow=allow)


def check_changes(changes: Sequence[str]) -> None:
    """Check that no ``--set`` changes something that such a lab does not have.

    :raises UsageError: one does.
    """
    for change in changes:
        path = change.partition("=")[0]
        if any(path == name or path.startswith(f"{name}.") for name in NOT_OURS):
            raise UsageError(
                f"'--set {path}' can't be used with join: the external cluster decides that.",
                cure="Leave it out.",
            )


def chosen(path: Path, context: str, lab: str) -> str:
    """What one context of a kubeconfig needs, as a separate kubeconfig with the same names as a lab's own.

    :param context: its name; empty: the current one.
    :raises UsageError: the file is not a kubeconfig, or has no such context.
    """
    file = account.expanded(path)
    try:
        config = documents.from_yaml(_bounded(file).decode())
        names = [_name(row["name"]) for row in config["contexts"] or ()]
        name = context or _name(config.get("current-context"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UsageError(f"'{path}' is not a readable kubeconfig.", why=_reason(error)) from error
    if name not in names:
        raise UsageError(
            f"'{path}' has no context '{name}'." if name else f"'{path}' has no current context.",
            cure=f"Give one with --context: {', '.join(names)}." if names else "Give another file: it has no contexts.",
        )
    try:
        row = _named(config, "context", name)
        cluster = dict(_named(config, "cluster", _name(row["cluster"])))
        user = dict(_named(config, "user", _name(row["user"])))
        folder = account.followed(file).parent
        made = kubeconfig.named(lab, _whole(cluster, folder), _whole(user, folder))
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"The context '{name}' in '{path}' can't be used.", why=_reason(error)) from error
    return made


def runs(admin: str) -> str:
    """The program that a kubeconfig of one context has kubectl run for its credentials; empty if there is none.

    Without its arguments, which may have secrets.
    """
    (row,) = documents.from_yaml(admin)["users"]
    return str((row["user"].get("exec") or {}).get("command") or "")


def look_at(
    lab_folder: LabFolder, admin: str, server: str, spec: Spec, origin: Origin, progress: Progress
) -> ForeignCluster:
    """Read the facts of the cluster with the kubeconfig *admin*. Nothing is touched.

    :param server: as :func:`winlab.adapters.kube.existing.read` takes it.
    :raises WinlabError: as :func:`winlab.adapters.kube.existing.read` and :func:`asking`.
    """
    with asking(lab_folder, admin, spec, origin, progress) as kubectl:
        return existing.read(kubectl, server, own_server(admin), attached=spec.network.attachment == "attached")


def own_server(admin: str) -> str:
    """Host and port of the API server in a kubeconfig of one context; empty if it is behind a path, as in a proxy."""
    parts = urlsplit(str(documents.from_yaml(admin)["clusters"][0]["cluster"]["server"]))
    return "" if parts.path.strip("/") else parts.netloc


@contextmanager
def asking(lab_folder: LabFolder, admin: str, spec: Spec, origin: Origin, progress: Progress) -> Iterator[Kubectl]:
    """kubectl with the kubeconfig *admin*, for the length of a with-block.

    It is the lab's own if it has one, otherwise the user's, otherwise the one from the lab's source.

    :raises WinlabError: as the source.
    """
    program = _kubectl(lab_folder)
    if program is None:
        known = versions.get(spec.kubernetes.version, allow_untested=spec.kubernetes.untested)
        program = sources.fetch_kubectl(known, origin, progress)
    progress.say("reading the cluster's configuration")
    with lab_folder.staging() as folder:
        path = folder / "kubeconfig"
        files.write_atomic(path, admin, mode=0o600)
        yield Kubectl(program, path)


def check(plan: Plan, cluster: ForeignCluster, there: Collection[str]) -> None:
    """Check that the plan's workers can join. Nothing has been touched so far.

    :param there: the names of the lab's machines that already exist, from a join that was interrupted.
    :raises UsageError: they can't, or the API server can't be reached at its advertised address.
    """
    names = [node.name for node in plan.members if node.name not in there]
    if not plan.nodes:
        raise UsageError("A lab without workers has no nodes that could join.", cure="Leave out --workers 0.")
    existing.check(cluster, plan.network.cidr, names, plan.cluster.versions.minor)
    port = cluster.external.rpartition(":")[2]
    own_names = not set(plan.network.resolvers) <= set(plan.host.resolvers)  # the lab uses others than this host
    try:
        here = endpoint.connect(cluster.external, cluster.ca)
    except socket.gaierror as error:
        if own_names:
            return
        raise UsageError(
            f"The cluster advertises its API server as {cluster.advertised}, but no name server knows that name.",
            why=str(error),
            cure=f"Give its address: --server ADDRESS:{port}. The lab's own DNS then resolves the name.",
        ) from error
    except ssl.SSLError as error:
        raise UsageError(
            f"What answers at {cluster.external} is not the cluster's API server, as nodes know it.",
            why=str(error),
            cure=f"Give another address with --server. {endpoint.NAMELESS}",
        ) from error
    except OSError as error:
        raise UsageError(
            f"The cluster's API server can't be reached at {cluster.external}, the address that nodes must use.",
            why=f"{error}. Guests reach what this host reaches.",
            cure="Allow the connection, or give another address with --server.",
        ) from error
    if here and plan.network.reach != "all":  # the source address is the destination: it is the host's own
        raise UsageError(
            f"The cluster's API server at {cluster.external} is on this host, which the lab's nodes don't reach.",
            why=f"network.reach is '{plan.network.reach}'.",
            cure="Allow it with --set network.reach=all.",
        )


def notes(plan: Plan, cluster: ForeignCluster) -> list[str]:
    """What the user should know about routes outside the lab, which winlab does not set up. Pure."""
    net, profile = plan.network, plan.cluster.profile
    lines = [
        f"The cluster at {cluster.external}: Kubernetes {cluster.version}, {cluster.cni_note}.",
        *attachment.ways(plan),
    ]
    if net.mode == "attached":
        return lines
    if isinstance(cni.get(profile), Routed):
        lines.append(f"The nodes get the files of '{profile}'.")
        if net.mode == "routed":
            lines.append(f"Routes to their pods are yours to set on the cluster's nodes: via {net.router_external}.")
    elif profile != cni.ELSEWHERE.name:
        whose = "winlab adds those for Windows" if plan.cluster.half else "also for Windows"
        lines.append(f"{profile}'s parts in pods are that cluster's own, {whose}.")
    return lines


def leave(folder: LabFolder, tags: Sequence[Tag]) -> tuple[list[str], str]:
    """Remove the lab's nodes from the external cluster that it joined, if it joined one, and what was made for them.

    A node is the lab's if it has the label and the address of one of the lab's machines. With the last of winlab's
    Windows nodes goes what winlab added to the cluster's network, and with the cluster's last one the RuntimeClasses.

    :returns: the names of those removed, and a sentence about the others, empty if there are none.
    """
    if not tags or any(tag.role == "controller" for tag in tags) or not folder.has(folder.kubeconfig):
        return [], ""
    tags = [tag for tag in tags if tag.is_member]
    names = [tag.node for tag in tags]
    command = f"kubectl delete node {' '.join(names)}; {identity.removal(names)}; {shared.REMOVAL}"
    program = _kubectl(folder)
    if program is None:  # the cache may have been cleared
        return [], f"There is no kubectl here any more. In the cluster that the lab joined, run: {command}"
    kubectl = Kubectl(program, folder.kubeconfig)
    if not kubectl.answers():  # also if this kubectl is damaged
        return [], f"The cluster that the lab joined does not answer; there, run: {command}"
    removed: list[str] = []
    left = []
    for tag in tags:
        try:
            row = kubectl.find("node", tag.node)
            if row is not None and not _is_ours(row, tag):
                left.append(f"'{tag.node}' is not this lab's")
                continue
            if row is not None:
                kubectl.run("delete", "node", tag.node, "--ignore-not-found")
                removed.append(tag.node)
            identity.remove(kubectl, tag.node)
        except WinlabError as error:
            left.append(f"'{tag.node}': {error.why or error.what}")
    if removed and not left:
        try:
            shared.remove_unused(kubectl)
        except WinlabError as error:
            return removed, f"What labs share stays in the cluster: {error.why or error.what}"
    return removed, f"Nodes that stay in the cluster: {'; '.join(left)}." if left else ""


def _kubectl(folder: LabFolder) -> Path | None:
    """The lab's own kubectl; without it, the user's."""
    found = folder.kubectl if folder.has(folder.kubectl) else shutil.which("kubectl")
    return None if found is None else Path(found)


def _is_ours(row: dict[str, Any], tag: Tag) -> bool:
    label = row["metadata"].get("labels", {}).get(nodes.MACHINE)
    told = {one["address"] for one in row.get("status", {}).get("addresses", []) if one["type"] == "InternalIP"}
    return bool(label == addresses.make_uuid(tag.lab, tag.node) and tag.address in (told or {tag.address}))


def _named(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    for row in config.get(f"{kind}s") or ():
        if _name(row["name"]) == name:
            found: dict[str, Any] = row[kind]
            return found
    raise ValueError(f"It has no {kind} '{name}'.")


def _name(value: object) -> str:
    """A name as kubectl reads it: one that YAML takes for a number or a truth is a text, too."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    """Why a kubeconfig can't be used, without Python's own words."""
    if isinstance(error, KeyError):
        return f"The field '{error.args[0]}' is missing."
    if isinstance(error, TypeError | AttributeError | LookupError):
        return "A field of it is not the mapping, list or text that kubectl expects there."
    return str(error)


def _bounded(path: Path) -> bytes:
    """A file's content.

    :raises OSError: it can't be read, or is too large; a device is endless.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(f"'{path}' has more than {LARGEST:,} bytes")
    return content


def _whole(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """An entry with the files that it names embedded; what can't be embedded is named by its full path."""
    made = dict(entry)
    for name, data in FILES.items():
        if (file := made.pop(name, None)) and data not in made:
            place = folder / file
            if files.is_no_file(place):
                raise OSError(f"'{place}' is not a file")
            made[data] = base64.b64encode(_bounded(place)).decode()
    if file := made.get("tokenFile"):
        made["tokenFile"] = str(folder / file)
    command = (made.get("exec") or {}).get("command", "")
    if "/" in command:
        made["exec"] = {**made["exec"], "command": str(folder / command)}
    return made
