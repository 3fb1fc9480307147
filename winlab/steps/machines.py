"""Steps that make a node's volumes and start its domain."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from winlab.adapters.vm import domains
from winlab.design.catalog import recipes
from winlab.design.plan.model import NodePlan, WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render import answer, cloud_init
from winlab.design.render import domain as domain_file
from winlab.engine.engine import Step
from winlab.events import Progress
from winlab.steps import Context, images
from winlab.supply.images import requirements
from winlab.supply.images import windows_media as own_media

CREDENTIALS = "credentials"
NETWORK = "network"

__all__ = ["CREDENTIALS", "NETWORK", "steps"]


def steps(context: Context, node: NodePlan) -> list[Step]:
    """The steps for one node: its disk, what it reads at first boot, its domain."""
    image = images.name(node.volume("base").name)
    disk = _step(context, node, "disk", _make_disk, (image,), usual=1)
    credentials = f"{CREDENTIALS}{context.suffix}"
    if node.os == "linux":
        parts = [disk, _step(context, node, "seed", _make_seed, (credentials,), usual=1)]
    elif node.has("media"):
        parts = [
            disk,
            _step(context, node, "answer", _make_answer, (credentials, image, *_drivers(node)), usual=1),
            _step(context, node, "media", _make_media, (image,), usual=2),
        ]
    else:
        parts = [disk, _step(context, node, "answer", _make_answer, (credentials,), usual=1)]
    needs = (f"{NETWORK}{context.suffix}", *(part.name for part in parts))
    return [*parts, Step(f"start {node.name}", _starter(context, node), _runs(context, node), needs, 3)]


def _drivers(node: NodePlan) -> tuple[str, ...]:
    """The step that fetches the node's drivers, where they come from the cache."""
    return (images.DRIVERS,) if node.windows is not None and own_media.takes_published(node.windows) else ()


def _step(
    context: Context,
    node: NodePlan,
    role: str,
    make: Callable[[Context, NodePlan, Progress], None],
    needs: tuple[str, ...],
    usual: float,
) -> Step:
    def done() -> bool:
        # once the domain is defined its volumes are whole: it is defined last
        return domains.find(context.conn, node.domain) is not None

    return Step(f"{role} {node.name}", lambda progress: make(context, node, progress), done, needs, usual)


def _make_disk(context: Context, node: NodePlan, progress: Progress) -> None:
    volume = node.volume("disk")
    progress.say(f"{node.disk_mib >> 10} GiB, thin")
    context.pool.create_disk(volume.name, volume.capacity_mib, volume.backing)


def _make_seed(context: Context, node: NodePlan, progress: Progress) -> None:
    progress.say("user-data, meta-data, network-config")
    files = cloud_init.seed_files(context.plan, node, context.state.credentials())
    _upload_iso(context, node.volume("seed").name, cloud_init.SEED_LABEL, files)


def _make_answer(context: Context, node: NodePlan, progress: Progress) -> None:
    made = context.state.credentials()
    added: dict[str, bytes | Path] = {}
    assert isinstance(node, WindowsNode)  # others have a seed
    if node.has("media"):  # a clone has all that already
        medium = images.local_image(node, progress, context)
        added = additions(node, medium, context.stock, progress)
        node = requirements.with_key(node, medium)
    files = {**answer.answer_files(context.plan, node, made, pfx=made.pfx(node.name)), **added}
    _upload_iso(context, node.volume("answer").name, answer.ANSWER_LABEL, files)


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


def _upload_iso(context: Context, volume: str, label: str, files: Mapping[str, bytes | Path]) -> None:
    from winlab.supply.media import small_iso

    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:  # 0700: it holds secrets
        path = Path(folder) / "image.iso"
        small_iso.write(path, label, files)
        context.pool.upload(volume, path)


def _make_media(context: Context, node: NodePlan, progress: Progress) -> None:
    from winlab.supply.media import noprompt

    volume = node.volume("media")
    assert volume.backing is not None
    medium = images.local_image(node, progress, context)
    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:
        overlay = Path(folder) / "media.qcow2"
        noprompt.make(medium, overlay, context.pool.path(volume.backing))
        context.pool.upload(volume.name, overlay)


def detach_step(context: Context, node: NodePlan) -> Step:
    """The step that takes the installation's CDs out of a Windows node that is ready.

    Setup reads an answer file again where it finds one (after sysprep), and this one holds secrets.
    """
    volumes = [volume.name for volume in node.volumes if volume.role in ("answer", "media")]

    def there() -> list[str]:
        # not the CD with Kubernetes, which comes into one of the drives afterwards
        cds = domains.inserted(context.conn, node.domain)
        return [target for target, path in cds.items() if path.name in volumes]

    def run(progress: Progress) -> None:
        for target in there():
            progress.say(f"taking out the CD in {target}")
            domains.eject(context.conn, node.domain, target)
        for volume in volumes:
            context.pool.delete(volume)

    def done() -> bool:
        left = [volume for volume in volumes if context.pool.exists(volume)]
        return not left and not there()

    return Step(f"detach {node.name}", run, done, needs=(f"boot {node.name}",), usual=1)


def _runs(context: Context, node: NodePlan) -> Callable[[], bool]:
    def done() -> bool:
        # tag_of says so if the name is taken by a domain of somebody else
        return domains.tag_of(context.conn, node.domain) is not None and domains.is_running(context.conn, node.domain)

    return done


def _starter(context: Context, node: NodePlan) -> Callable[[Progress], None]:
    def run(progress: Progress) -> None:
        vnc = context.state.credentials().nodes[node.name].vnc_password
        progress.say(f"{node.cpus} CPUs, {node.memory_mib} MiB")
        domains.define_and_start(
            context.conn, node.domain, domain_file.domain_xml(context.plan, node, vnc, context.pool.folder)
        )

    return run
