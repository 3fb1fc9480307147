"""Steps that make a node's volumes and start its domain."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from winlab.adapters.vm import domains
from winlab.design.catalog import recipes
from winlab.design.plan.model import NodePlan, WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render import answer, cloud_init
from winlab.design.render import domain as domain_file
from winlab.engine.run import Run
from winlab.engine.state import Kind, State
from winlab.engine.step import Load, Step
from winlab.events import Progress
from winlab.steps import images
from winlab.steps.states import (
    ANSWER,
    BOOTED,
    CREDENTIALS,
    DISK,
    DRIVE_FREE,
    DRIVERS,
    IMAGE,
    MEDIA,
    NETWORK,
    SEED,
    STARTED,
)
from winlab.supply.images import requirements
from winlab.supply.images import windows_media as own_media


def steps(run: Run, node: NodePlan) -> list[Step]:
    """The steps for one node: its disk, what it reads at first boot, its domain."""
    image, credentials = IMAGE(of=node.volume("base").name), CREDENTIALS(run.lab)
    disk = _step(run, node, DISK, _make_disk, [image], usual=1)
    if node.os == "linux":
        parts = [disk, _step(run, node, SEED, _make_seed, [credentials], usual=1)]
    elif node.has("media"):
        parts = [
            disk,
            _step(run, node, ANSWER, _make_answer, [credentials, image, *_drivers(node)], usual=1),
            _step(run, node, MEDIA, _make_media, [image], usual=2),
        ]
    else:
        parts = [disk, _step(run, node, ANSWER, _make_answer, [credentials], usual=1)]
    start = Step(
        STARTED(run.lab, node.name),
        _starter(run, node),
        _runs(run, node),
        after=[NETWORK(run.lab), *(part.reaches for part in parts)],
        # Linux has its seed in a drive of its own
        also=[DRIVE_FREE(run.lab, node.name)] if node.os == "linux" else [],
        usual=3,
    )
    return [*parts, start]


def _drivers(node: NodePlan) -> list[State]:
    """That the node's drivers are there, where they come from the cache."""
    return [DRIVERS()] if node.windows is not None and own_media.takes_published(node.windows) else []


def _step(
    run: Run,
    node: NodePlan,
    kind: Kind,
    make: Callable[[Run, NodePlan, Progress], None],
    after: Iterable[State],
    usual: float,
) -> Step:
    def done() -> bool:
        # once the domain is defined its volumes are whole: it is defined last
        return domains.find(run.conn, node.domain) is not None

    reaches = kind(run.lab, node.name)
    return Step(reaches, lambda voice: make(run, node, voice), done, after, usual=usual, load=Load.POOL)


def _make_disk(run: Run, node: NodePlan, progress: Progress) -> None:
    volume = node.volume("disk")
    progress.say(f"{node.disk_mib >> 10} GiB, thin")
    run.pool.create_disk(volume.name, volume.capacity_mib, volume.backing)


def _make_seed(run: Run, node: NodePlan, progress: Progress) -> None:
    progress.say("user-data, meta-data, network-config")
    files = cloud_init.seed_files(run.plan, node, run.folder.credentials())
    _upload_iso(run, node.volume("seed").name, cloud_init.SEED_LABEL, files)


def _make_answer(run: Run, node: NodePlan, progress: Progress) -> None:
    made = run.folder.credentials()
    added: dict[str, bytes | Path] = {}
    assert isinstance(node, WindowsNode)  # others have a seed
    if node.has("media"):  # a clone has all that already
        medium = images.local_image(node, progress, run)
        added = additions(node, medium, run.stock, progress)
        node = requirements.with_key(node, medium)
    files = {**answer.answer_files(run.plan, node, made, pfx=made.pfx(node.name)), **added}
    _upload_iso(run, node.volume("answer").name, answer.ANSWER_LABEL, files)


def additions(node: WindowsNode, medium: Path, stock: Stock, progress: Progress) -> dict[str, bytes | Path]:
    """What a Windows node gets with its answer file: drivers, OpenSSH, and what the user adds.

    :raises UsageError: something is not what it should be.
    """
    from winlab.supply.media import drivers, extras

    files: dict[str, bytes | Path] = {**extras.stage(node.windows, stock)}
    if (iso := own_media.drivers_file(node.windows, stock)) is not None:
        progress.say("staging drivers")
        files |= drivers.stage(iso, node.windows.release, node.bus)
    elif (folder := recipes.get(node.image).virtio_drivers) is not None:
        files |= drivers.stage(medium, node.windows.release, node.bus, folder)
    if node.windows.openssh is not None:
        files[answer.OPENSSH] = stock.require(node.windows.openssh)
    return files


def _upload_iso(run: Run, volume: str, label: str, files: Mapping[str, bytes | Path]) -> None:
    from winlab.supply.media import small_iso

    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:  # 0700: it holds secrets
        path = Path(folder) / "image.iso"
        small_iso.write(path, label, files)
        run.pool.upload(volume, path)


def _make_media(run: Run, node: NodePlan, progress: Progress) -> None:
    from winlab.supply.media import noprompt

    volume = node.volume("media")
    assert volume.backing is not None
    medium = images.local_image(node, progress, run)
    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:
        overlay = Path(folder) / "media.qcow2"
        noprompt.make(medium, overlay, run.pool.path(volume.backing))
        run.pool.upload(volume.name, overlay)


def detach_step(run: Run, node: NodePlan) -> Step:
    """The step that takes the installation's CDs out of a Windows node that is ready.

    Setup reads an answer file again where it finds one (after sysprep), and this one holds secrets.
    """
    volumes = [volume.name for volume in node.volumes if volume.role in ("answer", "media")]

    def there() -> list[str]:
        # not the CD with Kubernetes, which comes into one of the drives afterwards
        cds = domains.inserted(run.conn, node.domain)
        return [target for target, path in cds.items() if path.name in volumes]

    def work(progress: Progress) -> None:
        for target in there():
            progress.say(f"taking out the CD in {target}")
            domains.eject(run.conn, node.domain, target)
        for volume in volumes:
            run.pool.delete(volume)

    def done() -> bool:
        left = [volume for volume in volumes if run.pool.exists(volume)]
        return not left and not there()

    return Step(DRIVE_FREE(run.lab, node.name), work, done, after=[BOOTED(run.lab, node.name)], usual=1)


def _runs(run: Run, node: NodePlan) -> Callable[[], bool]:
    def done() -> bool:
        # tag_of says so if the name is taken by a domain of somebody else
        return domains.tag_of(run.conn, node.domain) is not None and domains.is_running(run.conn, node.domain)

    return done


def _starter(run: Run, node: NodePlan) -> Callable[[Progress], None]:
    def work(progress: Progress) -> None:
        vnc = run.folder.credentials().nodes[node.name].vnc_password
        progress.say(f"{node.cpus} CPUs, {node.memory_mib} MiB")
        domains.define_and_start(run.conn, node.domain, domain_file.domain_xml(run.plan, node, vnc, run.pool.folder))

    return work
