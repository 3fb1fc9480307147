"""Steps that make one volume of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from winlab.adapters.vm import domains
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import Kind, State
from winlab.engine.step import Load, Step
from winlab.events import Progress


def step(
    run: Run,
    node: NodePlan,
    kind: Kind,
    make: Callable[[Progress], None],
    after: Iterable[State],
    usual: float,
) -> Step:
    """The step that makes a volume; done when the domain exists.

    :param usual: how long it usually takes, in seconds.
    """

    def done() -> bool:
        # the domain is defined last: once it exists, its volumes are complete
        return domains.find(run.on(node).conn, node) is not None

    return Step(kind(run.lab, node.name), make, done, after, usual=usual, load=Load.POOL)


def upload_iso(run: Run, node: NodePlan, volume: str, label: str, files: Mapping[str, bytes | Path]) -> None:
    """Write the files to an ISO image and upload it to a volume."""
    from winlab.supply.media import small_iso

    with run.folder.staging() as folder:
        path = folder / "image.iso"
        small_iso.write(path, label, files)
        run.on(node).pool.upload(volume, path)
