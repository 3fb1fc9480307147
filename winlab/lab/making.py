"""A lab is planned, made, and changed by its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from winlab import operations
from winlab.events import Listener, Told, ignore
from winlab.lab.base import Base
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.design.plan.facts import HostFacts
    from winlab.design.plan.verdict import Verdict
    from winlab.design.spec.model import Spec
    from winlab.operations.diff import Difference
    from winlab.operations.lock import Renewed
    from winlab.operations.making import Until
    from winlab.operations.planning import Proposal
    from winlab.steps.sources import Origin
    from winlab.supply.artifacts.bundle.file import Bundle
    from winlab.supply.images.golden import Golden


class Making(Base):
    """Planned, made, and changed by a spec."""

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
        """What a user of this plan should know: assumed media, an older Kubernetes, small controllers, updates."""
        from winlab.design.plan import advice, cluster

        made = plan.plan
        notes = (cluster.version_note(plan.spec, made), operations.consent.assumed(made))
        return [*filter(None, notes), *advice.small_controllers(made), *advice.advice(made)]

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
        from winlab.steps.sources import Origin

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
        from winlab.steps.sources import Origin

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
