"""The front door: a lab by its name, and everything that can be done with it. The command line uses it, too.

Methods raise a :class:`winlab.errors.WinlabError`; each class has the command's exit code for it.
To see progress, pass a *listener*, which receives events (:mod:`winlab.events`) from any thread. To stop a method, set
the event *stop* from another thread: it raises :class:`winlab.stopping.Stopped`, and the same call resumes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from winlab import operations, settings
from winlab.design.plan.lab_name import check_lab_name
from winlab.errors import UsageError, WinlabError
from winlab.events import Event, Listener, Told, ignore
from winlab.node import Node
from winlab.site import Site, at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.adapters.guests.base import Sink
    from winlab.adapters.left import Left
    from winlab.adapters.vm.domains import Machine
    from winlab.checks.report import Report
    from winlab.design.fault import Fault
    from winlab.design.plan.facts import HostFacts
    from winlab.design.plan.verdict import Verdict
    from winlab.design.spec.model import Spec
    from winlab.design.system import SystemName
    from winlab.history.timeline import Timeline, Which
    from winlab.lab_snapshots import Snapshots
    from winlab.operations.autostart import Autostart
    from winlab.operations.clusters import ClusterVerdict, Nearby
    from winlab.operations.copied import Copied
    from winlab.operations.diff import Difference
    from winlab.operations.drift.model import Drift
    from winlab.operations.explain import Explained
    from winlab.operations.group import Ended, NodeSink
    from winlab.operations.join import Joining
    from winlab.operations.lab_hosts import HostStatus
    from winlab.operations.lock import Renewed
    from winlab.operations.logs import NodeDiagnostics
    from winlab.operations.look import LabFacts, NodeStatus, Overview
    from winlab.operations.making import Until
    from winlab.operations.planning import Proposal
    from winlab.operations.power import Switched
    from winlab.operations.push import PushedProgram
    from winlab.operations.watch import View
    from winlab.steps.payload import Origin
    from winlab.supply.artifacts.bundle.file import Bundle
    from winlab.supply.images.golden import Golden


class Lab:
    """A lab, whether it exists yet or not. Nothing is touched before a method is called.

    Methods that change a lab of another user raise :class:`winlab.errors.ConflictError`.

    :param site: where it lives; by default as the environment says.
    :param anyone: change it even if another user made it.
    """

    def __init__(self, name: str = settings.DEFAULT_LAB, site: Site | None = None, *, anyone: bool = False) -> None:
        self.name = name
        self.site = site or Site()
        self.anyone = anyone

    @staticmethod
    def all(site: Site | None = None) -> list[Lab]:
        """All labs of a site, by name, including those of which only a network or volumes are left.

        :raises HostError: libvirt or OVN does not answer.
        """
        site = site or Site()
        with site.in_use():
            return [Lab(name, site) for name in operations.look.all_labs(site)]

    @staticmethod
    def overview(site: Site | None = None) -> Overview:
        """All labs of a site with their machines, in one look; and what could not be seen.

        :raises HostError: the first hypervisor's libvirt does not answer.
        """
        site = site or Site()
        with site.in_use():
            return operations.look.overview(site)

    @staticmethod
    def known_names(site: Site | None = None) -> list[str]:
        """The names of a site's labs, and of those that left a local folder; never fails."""
        site = site or Site()
        with site.in_use():
            return operations.look.known_names(site)

    def __repr__(self) -> str:
        return f"Lab({self.name!r})"

    @property
    def context(self) -> str:
        """The name of the lab's context in kubeconfigs."""
        from winlab.adapters.kube import kubeconfig

        return kubeconfig.name(self.name)

    def _require_owner(self) -> None:
        if not self.anyone:
            operations.owner.require(self.name, self.site)

    @property
    def snapshots(self) -> Snapshots:
        """Its snapshots: saved, put back, copied."""
        from winlab.lab_snapshots import Snapshots

        return Snapshots(self.name, self.site, anyone=self.anyone)

    # -- plan and make

    @at_site
    def plan(
        self,
        spec: Spec,
        *,
        facts: HostFacts | None = None,
        machines: bool = True,
        again: Mapping[str, str] | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Proposal:
        """Decide everything that would exist. Nothing is touched.

        :param facts: of the host; by default the site's.
        :param machines: whether nodes are to be made of it. A plan for :meth:`lock`, :meth:`bundle` or
            :meth:`build_golden` needs no room on the hypervisors, and a lab of this name does not matter.
        :param again: nodes to make again, and the hypervisor of each; empty: any.
        :raises UsageError: this host can't provide what the spec asks for, or a file that it names can't be read.
        :raises HostError: the site's hypervisors lack something, or do not answer.
        """
        folder = self.site.folder(self.name)
        return operations.planning.make(
            spec,
            self.name,
            facts or self.site.host_facts,
            Told(listener, "plan"),
            standing=operations.recorded.standing(folder) if machines else (),
            again={**operations.recorded.again(folder), **(again or {})} if machines else {},
            site=self.site if machines else None,
        )

    @at_site
    def check(self, plan: Proposal) -> None:
        """Check what :meth:`create` checks before it touches anything: media, files, and other labs of this name.

        Evaluation media that :meth:`create` could download may be missing. Memory is not compared: see :meth:`judge`.

        :raises WinlabError: something is missing or unsuitable, or another lab has this name.
        """
        operations.verdict.check(plan, self.site)

    @at_site
    def judge(self, plan: Proposal) -> Verdict:
        """What :meth:`create` would need for a plan: downloads, time, memory and disk, as far as that is known."""
        return operations.verdict.judge(plan, self.site)

    @at_site
    def render(self, plan: Proposal, folder: Path) -> list[Path]:
        """Write every file that guests and libvirt would be given, with secrets masked; returns the paths.

        :raises UsageError: the folder can't be written.
        """
        return operations.render.write(plan.plan, folder)

    @at_site
    def terms(self, plan: Proposal) -> str | None:
        """The terms of Microsoft's evaluations, if a person must accept them for :meth:`create` to download a medium.

        None: nothing is to be downloaded, or the terms were accepted before.
        """
        return operations.consent.terms(plan.plan, self.site)

    @at_site
    def notes(self, plan: Proposal) -> list[str]:
        """What a user of this plan should know: media that it assumes, an older Kubernetes, updates it could have."""
        from winlab.design.plan import advice, cluster

        notes = (cluster.version_note(plan.spec, plan.plan), operations.consent.assumed(plan.plan))
        return [*(note for note in notes if note is not None), *advice.advice(plan.plan)]

    @staticmethod
    def lock_file(spec: str) -> Path:
        """The lock file of a spec as the user named it: beside its file, else in the current folder."""
        return operations.lock_file.beside(spec)

    @at_site
    def create(
        self,
        plan: Proposal,
        *,
        until: Until = "cluster",
        origin: Origin | None = None,
        locked: Path | None = None,
        accept_eula: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> None:
        """Create the lab, or resume one that was interrupted; what already exists is not changed.

        :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
        :param origin: where Kubernetes and images come from; by default whatever is available.
        :param locked: a lock file; anything that differs from it is refused.
        :param accept_eula: the user has accepted Microsoft's terms for evaluations; this is remembered.
        :raises NotFoundError: there is no source for something that the lab needs; nothing was touched.
        :raises ConflictError: a lab of that name was made from another plan, or another winlab is working on it.
        :raises WinlabError: a step failed; the same call resumes.
        """
        fetch = self._consent(plan, accept_eula, origin)
        self._require_owner()
        operations.create.create(plan, self.site, listener, until=until, origin=origin, locked=locked, consent=fetch)

    @at_site
    def spec(
        self,
        changes: Sequence[str] = (),
        *,
        os: str | None = None,
        iso: str | None = None,
        rehearse: bool = False,
        allow: Sequence[str | Path] = (),
    ) -> Spec:
        """The spec that the lab was made from, or is being changed to; options as those of ``Spec.load``.

        :raises NotFoundError: this account has no record of the lab.
        :raises UsageError: a change is not valid.
        """
        operations.look.require_lab(self.name, self.site)
        held = operations.recorded.read(self.site.folder(self.name)).wanted.restored_spec()
        return held.changed(changes, os=os, iso=iso, rehearse=rehearse, allow=allow)

    @at_site
    def grown(self, pool: str = "", count: int = 1) -> Spec:
        """The lab's spec with more nodes in a pool; by default the first one.

        :raises NotFoundError: this account has no record of the lab, or the lab has no such pool.
        :raises UsageError: there is no room for them, or an add-on decides how many there are.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.resize.grown(self.name, self.site, pool, count)

    @at_site
    def unchanged(self) -> Spec:
        """The lab's spec, with the versions that winlab decided for it.

        :raises NotFoundError: this account has no record of the lab.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.resize.unchanged(self.name, self.site)

    @at_site
    def elsewhere(self, node: str, hypervisor: str) -> Spec:
        """The lab's spec for a plan with *again*: it uses as many hypervisors as it then has.

        :raises NotFoundError: this account has no record of the lab, or the lab has no such node.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.elsewhere.spec(self.name, self.site, {node: hypervisor})

    @at_site
    def shrunk(self, node: str) -> Spec:
        """The lab's spec without a node, the last one of its pool.

        :raises NotFoundError: this account has no record of the lab, or the lab has no such node.
        :raises ConflictError: it is a controller.
        :raises UsageError: it is not the last one of its pool, or an add-on decides how many there are.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.resize.shrunk(self.name, self.site, node)

    @at_site
    def diff(self, plan: Proposal, *, rebuild: str = "") -> Difference:
        """What :meth:`apply` would change, without asking the guests; false if that is nothing.

        :param rebuild: as for :meth:`apply`.
        :raises NotFoundError: this account has no record of the lab.
        :raises ConflictError: the lab is not made from what is recorded, or joined an external cluster.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.diff.difference(plan.plan, self.site, rebuild)

    @at_site
    def apply(
        self,
        plan: Proposal,
        *,
        until: Until = "cluster",
        origin: Origin | None = None,
        accept_eula: bool = False,
        restart: bool = False,
        force: bool = False,
        rebuild: str = "",
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> None:
        """Change the standing lab into that of the plan, or continue a change that was interrupted.

        :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
        :param origin: where Kubernetes and images come from; by default whatever is available.
        :param accept_eula: the user has accepted Microsoft's terms for evaluations; this is remembered.
        :param restart: shut down machines whose sizes change, and start them again; otherwise the change takes effect
            at their next start.
        :param force: remove nodes even if their pods can't be moved.
        :param rebuild: a worker that is removed and made again, with the same name and addresses; on the hypervisor
            that the plan says.
        :raises NotFoundError: this account has no record of the lab; nothing was touched.
        :raises ConflictError: something can't be changed while the lab stands; nothing was touched.
        :raises WinlabError: a step failed; the same call continues.
        """
        fetch = self._consent(plan, accept_eula, origin)
        self._require_owner()
        operations.apply.apply(
            plan, self.site, listener,
            until=until, origin=origin, consent=fetch, restart=restart, force=force, rebuild=rebuild,
        )  # fmt: skip

    @staticmethod
    def join_spec(
        workers: int,
        changes: Sequence[str] = (),
        *,
        os: str | None = None,
        iso: str | None = None,
        rehearse: bool = False,
        allow: Sequence[str | Path] = (),
    ) -> Spec:
        """The spec of workers for an external cluster; options as those of ``Spec.load``.

        :param workers: how many.
        :raises UsageError: a change is up to the cluster, or the spec is not valid.
        """
        return operations.join.make_spec(workers, changes, os=os, iso=iso, rehearse=rehearse, allow=allow)

    @at_site
    def plan_join(
        self,
        spec: Spec,
        kubeconfig: Path,
        *,
        context: str = "",
        server: str = "",
        prefix: str = "node",
        origin: Origin | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Joining:
        """Inspect an external cluster, and plan workers that can join it. Nothing is touched.

        :param spec: its controllers are left out.
        :param kubeconfig: a file of one of the cluster's administrators.
        :param context: the name of one of its contexts; empty: the current one.
        :param server: ADDRESS:PORT that the API server's advertised host name resolves to; empty: ask the name servers.
        :param prefix: the workers' names, followed by a number.
        :param origin: where kubectl comes from, if this host does not have it.
        :raises UsageError: the workers can't join.
        :raises WinlabError: the cluster can't be inspected.
        """
        return operations.join.plan(
            spec, self.name, self.site, listener, kubeconfig,
            context=context, server=server, prefix=prefix, origin=origin,
        )  # fmt: skip

    @staticmethod
    def nearby_clusters() -> list[Nearby]:
        """The external clusters that this host shows: kubeconfigs, containers, files of distributions. Reads only."""
        return operations.clusters.nearby()

    @at_site
    def check_join(
        self,
        spec: Spec,
        kubeconfig: Path,
        *,
        context: str = "",
        server: str = "",
        origin: Origin | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> ClusterVerdict:
        """What an external cluster is, and what workers will have and lack there. Nothing is touched.

        Options as those of :meth:`plan_join`.

        :raises WinlabError: the cluster can't be inspected.
        """
        return operations.clusters.check(
            spec, self.name, self.site, listener, kubeconfig, context=context, server=server, origin=origin
        )

    @at_site
    def join(
        self,
        joining: Joining,
        *,
        until: Until = "cluster",
        origin: Origin | None = None,
        accept_eula: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> None:
        """Create the lab and have its workers join the cluster, or resume that.

        :param joining: what :meth:`plan_join` returned.
        :raises WinlabError: as :meth:`create`.
        """
        fetch = self._consent(joining.planned, accept_eula, origin)
        self._require_owner()
        operations.join.join(joining, self.site, listener, until=until, origin=origin, consent=fetch)

    @at_site
    def bundle(
        self,
        plan: Proposal,
        to: Path | None = None,
        *,
        origin: Origin | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Bundle:
        """Gather everything that the plan needs into one verified file.

        :param to: the file; by default in the cache, where :meth:`create` finds it.
        :raises WinlabError: something can't be obtained, or the file can't be written.
        """
        from winlab.steps.payload import Origin

        return operations.bundle.gather(plan.plan, plan.stock, to, origin or Origin(), listener)

    @at_site
    def build_golden(
        self,
        plan: Proposal,
        *,
        origin: Origin | None = None,
        accept_eula: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Golden:
        """Make the golden image of the plan's Windows nodes, unless it is in the cache. The lab is not touched.

        :raises WinlabError: as :meth:`create`.
        """
        from winlab.steps.payload import Origin

        fetch = self._consent(plan, accept_eula, origin)
        return operations.golden.build(plan.plan, plan.stock, self.site, listener, origin or Origin(), consent=fetch)

    @at_site
    def lock(
        self,
        plan: Proposal,
        *,
        spec: str,
        origin: Origin | None = None,
        file: Path | None = None,
        check: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Renewed:
        """Write or update the lock file: every input of the lab by its hash.

        :param spec: the spec as the user named it; by default the file is beside it.
        :param check: write nothing.
        :raises ConflictError: with *check*, something differs; it is named.
        :raises WinlabError: something can't be obtained, or the file can't be read or written.
        """
        return operations.lock.renew(plan.plan, plan.stock, listener, spec=spec, origin=origin, path=file, check=check)

    def _consent(self, plan: Proposal, accepted: bool, origin: Origin | None) -> bool:
        """Whether missing media may be downloaded for a plan of this lab.

        :raises UsageError: it is another lab's plan.
        """
        if plan.plan.lab != self.name:
            raise UsageError(
                f"The plan is for the lab '{plan.plan.lab}', and this is the lab '{self.name}'.",
                cure="Pass what this lab's plan() returned.",
            )
        offline = origin is not None and origin.bundle is not None
        return operations.consent.settle(plan.plan, self.site, accepted=accepted, offline=offline)

    # -- look

    @at_site
    def status(self) -> list[NodeStatus]:
        """The nodes as they are now; each running node is asked over a verified login.

        :raises NotFoundError: there is no such lab.
        """
        return operations.look.status(self.name, self.site)

    @at_site
    def about(self) -> LabFacts:
        """What this account has recorded of the lab: Kubernetes' version, CNI profile, age; empty if it has none."""
        return operations.look.about(self.site.folder(self.name))

    @at_site
    def hypervisors(self, nodes: Sequence[NodeStatus], *, ask: bool = True) -> list[HostStatus]:
        """The hypervisors that nodes are on, with their memory; none if all are on the first.

        :param nodes: as :meth:`status` found them.
        :param ask: connect to them, for their memory; otherwise their states are as the nodes' say.
        :raises HostError: the first hypervisor's libvirt does not answer.
        """
        return operations.lab_hosts.of(nodes, self.site, ask=ask)

    @at_site
    def machines(self) -> list[Machine]:
        """The lab's virtual machines with their states, without asking them; empty if there are none."""
        return operations.look.machines(self.name, self.site)

    @at_site
    def graph(self) -> str:
        """Its topology as an SVG picture: networks, router, and the nodes by hypervisor.

        :raises NotFoundError: there is no such lab.
        """
        return operations.graph.svg(self.name, self.site)

    def node(self, name: str) -> Node:
        """One node. It is not checked here; its methods raise if there is no such node."""
        return Node(self.name, name, self.site)

    @at_site
    def ssh_config(self) -> str:
        """Entries for ``~/.ssh/config``: ssh, scp, rsync and editors know the nodes as ``NODE.LAB``, and verify them.

        :raises NotFoundError: there is no such lab, or this account has no credentials for it.
        """
        return operations.outlets.ssh_config(self.name, self.site)

    @at_site
    def hosts(self) -> str:
        """Lines for ``/etc/hosts``: the addresses by which this host reaches nodes, and their names.

        :raises NotFoundError: there is no such lab.
        """
        return operations.outlets.hosts(self.name, self.site)

    @at_site
    def environment(self) -> dict[str, str]:
        """The variables with which winlab and kubectl use the lab.

        :raises NotFoundError: there is no such lab.
        """
        return operations.outlets.environment(self.name, self.site)

    @at_site
    def inventory(self) -> str:
        """An inventory for Ansible, as YAML: groups by role, system and pool. There is no secret in it.

        :raises NotFoundError: there is no such lab, or this account has no credentials for it.
        """
        return operations.outlets.inventory(self.name, self.site)

    @at_site
    def select(self, *, pools: Sequence[str] = (), systems: Sequence[SystemName] = ()) -> list[str]:
        """The names of the nodes that are in one of the pools, or run ``linux`` or ``windows``; by default all.

        :raises NotFoundError: there is no such lab or pool, or this account has no record of the lab's pools.
        :raises UsageError: there is no such node.
        """
        return [one.tag.node for one in operations.group.select(self.name, self.site, pools, systems)]

    @at_site
    def execute(
        self,
        command: Sequence[str],
        nodes: Sequence[str] = (),
        *,
        stdout: NodeSink,
        stderr: NodeSink,
        stop: Stop = None,
    ) -> dict[str, Ended]:
        """Run a command on several nodes at once; a node that fails does not stop the others.

        :param command: its words; a single word is run as a line of each node's shell.
        :param nodes: by default all.
        :param stdout: called with a node's name and what it printed, from several threads.
        :raises NotFoundError: there is no such lab or node.
        :raises OSError: what *stdout* or *stderr* raises; all commands are stopped.
        """
        with self.site.hypervisors() as hosts:
            machines = operations.look.find_nodes(self.name, nodes, hosts)
        return operations.group.execute(machines, self.site, command, stdout, stderr)

    @at_site
    def copy(
        self,
        sources: Sequence[str],
        target: str,
        *,
        root: bool = False,
        stdin: Iterable[bytes] = (),
        stdout: Sink | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Copied:
        """Copy files and folders, as ``winlab cp`` does: each place is ``NODE:PATH``, or a path of this host.

        :param root: use the rights of root on Linux nodes.
        :param stdin: the bytes of the source ``-``.
        :param stdout: takes the bytes if the target is ``-``.
        :raises UsageError: the places don't go together.
        :raises WinlabError: as :meth:`Node.copy_to`.
        """
        parse = operations.copy.Place.parse
        places = [parse(source) for source in sources]
        return operations.copy.copy(
            self.name, places, parse(target), self.site, listener, root=root, stdin=stdin, stdout=stdout
        )

    @at_site
    def logs(self, node: str = "", lines: int = 60) -> list[NodeDiagnostics]:
        """Conditions, events and the last lines of the logs of one node, or of all of them.

        :param lines: how many lines of each log, at most 10,000.
        :raises NotFoundError: there is no such lab or node.
        """
        return operations.logs.reports(self.name, self.site, node, lines)

    @at_site
    def events(self, run: Which = "all", *, follow: bool = False) -> Generator[Event, None, None]:
        """The events of the lab's journal: what the commands did that changed it.

        :param run: ``last``, ``all``, or a run's number; the oldest that the journal still has is 1. Events that belong
            to no run are among ``all`` only.
        :param follow: also yield new ones as they come, endlessly.
        :raises NotFoundError: this account has no journal of the lab, or there is no run in it.
        :raises UsageError: there is no such run.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.timeline.events(self.name, self.site, run, follow=follow)

    @at_site
    def timeline(self, run: Which = "last") -> Timeline:
        """When the steps of runs began and ended, and which of them the runs took as long as.

        :param run: as :meth:`events` takes it.
        :raises NotFoundError: this account has no journal of the lab, or there is no run in it.
        :raises UsageError: there is no such run.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.timeline.timeline(self.name, self.site, run)

    @at_site
    def watch(self) -> Generator[View, None, None]:
        """The lab as it is now, again every second, endlessly: its run, who runs it, what each node is doing.

        Nodes are asked in the background, every 30 s. Close the iterator to end that.

        :raises NotFoundError: there is no trace of such a lab.
        """
        return operations.watch.watch(self.name, self.site)

    @at_site
    def support(
        self,
        to: Path | None = None,
        *,
        failed: BaseException | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Path:
        """Write an archive with everything about the lab that helps to find out what went wrong; returns its path.

        Secrets are masked. It needs no lock and changes nothing; what can't be collected is listed in it.

        :param to: the file; by default one in ``support`` in the state folder, which keeps the last ones of each lab.
        :param failed: what failed just before: it goes into the archive, and collecting takes less time.
        :raises NotFoundError: there is nothing of such a lab, and nothing has failed.
        :raises UsageError: no lab can have this name, or *to* can't be written.
        :raises AccessError: the state folder can't be written.
        """
        check_lab_name(self.name, own=True)
        if failed is None:
            operations.look.require_lab(self.name, self.site)
        return operations.support.collect(self.name, self.site, listener, to=to, failed=failed)

    @staticmethod
    def explain(path: Path) -> Explained:
        """The known causes that a log shows, or an archive that :meth:`support` made, wherever it was made.

        Nothing is unpacked or asked; that nothing known shows is an answer, too.

        :param path: a node's serial log, a log of Windows Setup, a bootstrap.log, or an archive (.tar.gz, .tar).
        :raises UsageError: it can't be read, or is none of these.
        """
        return operations.explain.explain_file(path)

    # -- the cluster

    @at_site
    def kubectl(self, *words: str) -> str:
        """What the lab's own kubectl prints: ``lab.kubectl("get", "nodes")``.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        :raises GuestError: none of its controllers runs.
        :raises ClusterError: kubectl failed.
        """
        from winlab.adapters.kube.kubectl import Kubectl

        operations.recorded.require_cluster(self.site.folder(self.name))
        operations.look.require_reachable(self.name, self.site)
        return Kubectl.of(self.site.folder(self.name)).run(*words)

    @at_site
    def become_kubectl(self, words: Sequence[str]) -> NoReturn:
        """Replace this process with the lab's own kubectl, for a user at a terminal.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        :raises GuestError: none of its controllers runs.
        """
        from winlab.adapters.kube.kubectl import Kubectl

        operations.recorded.require_cluster(self.site.folder(self.name))
        operations.look.require_reachable(self.name, self.site)
        Kubectl.of(self.site.folder(self.name)).replace_process(words)

    @at_site
    def kubeconfig(self) -> str:
        """The lab's kubeconfig.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        """
        from winlab.adapters.kube import kubeconfig

        operations.look.require_lab(self.name, self.site)
        operations.recorded.require_cluster(self.site.folder(self.name))
        return kubeconfig.read(self.site.folder(self.name))

    @at_site
    def merge_kubeconfig(self, *, use: bool = False) -> Path:
        """Merge the lab's kubeconfig into the user's own, as the context ``winlab-NAME``; returns that file.

        :param use: make it the current context.
        :raises WinlabError: the lab has no kubeconfig, or the user's can't be changed.
        """
        from winlab.adapters.kube import kubeconfig

        operations.look.require_lab(self.name, self.site)
        operations.recorded.require_cluster(self.site.folder(self.name))
        return kubeconfig.publish(self.name, use=use)

    @at_site
    def push(
        self, node: str, binary: str, *, restore: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> PushedProgram:
        """Replace a program on a running node with your own build, or restore the original.

        :param binary: the file, whose name says what it replaces; with *restore*, only the name.
        :raises UsageError: the file is not a program of this node; nothing was touched.
        :raises WinlabError: the node or the cluster refused.
        """
        operations.recorded.require_cluster(self.site.folder(self.name))
        self._require_owner()
        return operations.push.to_node(self.name, self.site, node, binary, listener, restore=restore)

    @at_site
    def load(
        self, image: str, *, name: str = "", listener: Listener = ignore, stop: Stop = None
    ) -> dict[str, list[str]]:
        """Load a container image onto every node of its operating system; returns the nodes, by the image's full name.

        :param image: an archive, or the name of an image in Docker or Podman.
        :param name: its name in the lab; by default its own.
        :raises WinlabError: there is no such image, no node can run it, or a node refused.
        """
        operations.recorded.require_cluster(self.site.folder(self.name))
        self._require_owner()
        return operations.load.to_lab(self.name, self.site, image, listener, name=name)

    @at_site
    def test_readiness(
        self, *, only: str | None = None, timeout: float | None = None, listener: Listener = ignore, stop: Stop = None
    ) -> Report:
        """Wait until every part of the cluster is ready; the report says why one is not.

        :param only: identifiers of checks, with commas between; None: all.
        :param timeout: seconds after which checks have failed that do not pass, even if the cluster makes progress.
        :raises UsageError: *only* names a check that does not exist; nothing was touched.
        :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
        :raises GuestError: none of its controllers runs.
        """
        from winlab.checks import suites

        operations.recorded.require_cluster(self.site.folder(self.name))
        return suites.readiness(self.name, self.site, listener, only=only, timeout=timeout)

    @at_site
    def test_smoke(
        self, *, only: str | None = None, keep: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> Report:
        """Run pods on the lab's nodes and have them talk: to each other, to services, to the outside.

        :param only: identifiers of checks, with commas between; None: all.
        :param keep: leave the pods for inspection.
        :raises UsageError: *only* names a check that does not exist; nothing was touched.
        :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
        :raises GuestError: none of its controllers runs.
        :raises ClusterError: the API server does not answer, or refuses the pods.
        """
        from winlab.checks import suites

        operations.recorded.require_cluster(self.site.folder(self.name))
        return suites.smoke(self.name, self.site, listener, only=only, keep=keep)

    # -- off and on

    @at_site
    def stop(
        self, nodes: Sequence[str] = (), *, force: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> list[Switched]:
        """Shut down nodes, workers before controllers; those that are off are skipped.

        :param nodes: their names; none: the whole lab.
        :param force: cut their power instead.
        :raises NotFoundError: there is no such lab or node; nothing was touched.
        :raises StalledError: a node does not shut down.
        """
        self._require_owner()
        return operations.power.stop(self.name, self.site, nodes, listener, force=force)

    @at_site
    def start(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Start nodes that are off, and resume those that are suspended; wait until they answer and are Ready.

        Their clocks are set by the host's.

        :param nodes: their names; none: the whole lab.
        :raises NotFoundError: there is no such lab or node, or it was made from another account; nothing was touched.
        :raises WinlabError: a node can't be started, does not answer, or does not become Ready.
        """
        self._require_owner()
        return operations.power.start(self.name, self.site, nodes, listener)

    @at_site
    def restart(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Shut nodes down, switch them off, and start them, as :meth:`stop` and :meth:`start` do.

        :param nodes: their names; none: the whole lab.
        :raises WinlabError: as those two.
        """
        self._require_owner()
        return operations.power.restart(self.name, self.site, nodes, listener)

    @at_site
    def suspend(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Suspend running nodes in memory.

        :param nodes: their names; none: the whole lab, of which nodes that are off stay off.
        :raises NotFoundError: there is no such lab or node; nothing was touched.
        :raises GuestError: a node that was named is off; nothing was touched.
        """
        self._require_owner()
        return operations.power.suspend(self.name, self.site, nodes, listener)

    @at_site
    def resume(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Resume nodes that are suspended or paused, set their clocks, wait until they answer and are Ready.

        :param nodes: their names; none: the whole lab, of which nodes that are off stay off.
        :raises NotFoundError: there is no such lab or node, or it was made from another account; nothing was touched.
        :raises GuestError: a node that was named is off; nothing was touched.
        :raises WinlabError: a node can't be resumed, does not answer, or does not become Ready.
        """
        self._require_owner()
        return operations.power.resume(self.name, self.site, nodes, listener)

    @at_site
    def autostart(self, *, wanted: bool) -> Autostart:
        """Have the lab's nodes start with the host, or not.

        :raises NotFoundError: there is no such lab.
        :raises ConflictError: another winlab is changing the lab.
        """
        self._require_owner()
        return operations.autostart.change(self.name, self.site, wanted=wanted)

    @at_site
    def protect(self, *, wanted: bool = True) -> None:
        """Have commands refuse to destroy or reset the lab, or to remove or rebuild its nodes, for every user.

        :param wanted: False: end that.
        :raises NotFoundError: there is no such lab.
        :raises ConflictError: another winlab is changing the lab.
        """
        self._require_owner()
        operations.protect.change(self.name, self.site, wanted=wanted)

    @at_site
    def protected_by(self) -> str | None:
        """The user who protected the lab, as far as hypervisors answer; None: it is not protected."""
        with self.site.hypervisors() as hosts:
            return operations.protect.by(self.name, hosts)

    @at_site
    def repair(
        self,
        node: str = "",
        *,
        check: bool = False,
        digests: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> list[Drift]:
        """Find what differs from the lab's recorded plan, and repair it; empty if nothing differs.

        :param node: only this node's things, and those of the whole lab; empty: every node's.
        :param check: only look.
        :param digests: also read base volumes whole, and compare their digests.
        :raises NotFoundError: there is no such node, or this account has no record of what the lab was made from.
        :raises ConflictError: the lab was made from another plan, or another winlab is working on it.
        :raises WinlabError: the repair failed; the same call resumes.
        """
        operations.look.require_lab(self.name, self.site)
        if not check:
            self._require_owner()
        return operations.repair.repair(self.name, self.site, listener, node=node, check=check, digests=digests)

    # -- faults on purpose

    @at_site
    def add_fault(
        self, /, kind: str, *nodes: str, listener: Listener = ignore, stop: Stop = None, **settings: object
    ) -> Fault:
        """Do a fault to a node, or between two: ``lab.add_fault("loss", "node-1", percent=20)``.

        The same fault with other settings replaces the first one. docs/faults.md has all kinds.

        :param settings: of this kind, as the command's flags are called.
        :raises UsageError: there is no such fault, or it can't be done to these nodes; nothing was touched.
        :raises NotFoundError: there is no such lab or node.
        :raises GuestError: a node does not run, can't be asked, or refuses.
        """
        from winlab.design import fault

        self._require_owner()
        return operations.faults.add(self.name, self.site, fault.make(kind, nodes, **settings), listener)

    @at_site
    def faults(self) -> list[Fault]:
        """The faults that are active, no matter who added them.

        :raises NotFoundError: there is no such lab.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.faults.active(self.name, self.site)

    @at_site
    def clear_faults(self, which: str = "", *, listener: Listener = ignore, stop: Stop = None) -> list[Fault]:
        """Undo faults; safe to repeat.

        :param which: a fault's ``id``, or a node's name; by default all.
        :returns: those that were active.
        :raises NotFoundError: there is no such lab, or no fault or node of this name.
        :raises GuestError: a node can't be asked, or refuses; the faults elsewhere are undone.
        """
        self._require_owner()
        return operations.faults.clear(self.name, self.site, which, listener)

    # -- the end

    @at_site
    def destroy(self, *, anyone: bool = False, listener: Listener = ignore, stop: Stop = None) -> list[str]:
        """Remove every trace of the lab; safe to repeat. Images are kept.

        What is on a hypervisor that does not answer is remembered: :meth:`left`.

        :param anyone: as in the constructor.
        :returns: what was removed, for display; empty if there was nothing.
        :raises UsageError: no lab can have this name.
        :raises ConflictError: another user made the lab; nothing was touched.
        :raises WinlabError: something can't be removed.
        """
        check_lab_name(self.name, own=True)
        return operations.destroy.destroy(self.name, self.site, listener, anyone=anyone or self.anyone)

    @at_site
    def left(self) -> tuple[Left, ...]:
        """What it left on hypervisors that did not answer; the next command that changes a lab removes it there.

        What OVN does not say, because it does not answer, is missing.
        """
        with suppress(WinlabError):
            return tuple(one for one in self.site.left() if one.lab == self.name)
        return ()
