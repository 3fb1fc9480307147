"""A lab of workers joins an external cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from winlab import operations
from winlab.events import Listener, ignore
from winlab.lab.base import Base
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.design.spec.model import Spec
    from winlab.operations.clusters import ClusterVerdict, Nearby
    from winlab.operations.join import Joining
    from winlab.operations.making import Until
    from winlab.steps.sources import Origin


class External(Base):
    """Workers for an external cluster."""

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
