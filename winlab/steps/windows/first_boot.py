"""What a Windows node reads at its first boot: the answer file's CD and, unless it is a clone, its medium."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from winlab.adapters.vm import devices
from winlab.design.catalog import recipes
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render import answer
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import volumes
from winlab.steps.states import ANSWER, BOOTED, CREDENTIALS, DRIVE_FREE, DRIVERS, IMAGE, MEDIA
from winlab.steps.windows import media
from winlab.supply.images import cache, expansion, requirements, windows_media
from winlab.supply.media import windows_iso


def steps(run: Run, node: WindowsNode) -> list[Step]:
    """The steps that make the answer file's CD and the medium's overlay."""

    def make_answer(progress: Progress) -> None:
        _make_answer(run, node, progress)

    def make_media(progress: Progress) -> None:
        _make_media(run, node, progress)

    image, credentials = IMAGE(of=node.volume("base").name, host=node.hypervisor), CREDENTIALS(run.lab)
    if not node.has("media"):
        return [volumes.step(run, node, ANSWER, make_answer, [credentials], usual=1)]
    drivers = [DRIVERS()] if windows_media.takes_published(node.windows) else []
    return [
        volumes.step(run, node, ANSWER, make_answer, [credentials, image, *drivers], usual=1),
        volumes.step(run, node, MEDIA, make_media, [image], usual=2),
    ]


def _make_answer(run: Run, node: WindowsNode, progress: Progress) -> None:
    made = run.folder.credentials()
    added: dict[str, bytes | Path] = {}
    if node.has("media"):  # a clone already has all of that
        medium = media.of(run, node, progress)
        added = additions(node, medium, run.stock, progress)
        node = requirements.with_key(node, medium)
    files = {**answer.answer_files(run.plan, node, made, expansion.expand), **added}
    volumes.upload_iso(run, node, node.volume("answer").name, answer.ANSWER_LABEL, files)


def additions(node: WindowsNode, medium: Path, stock: Stock, progress: Progress) -> dict[str, bytes | Path]:
    """What a Windows node gets with its answer file: drivers, OpenSSH, and what the user adds.

    :raises UsageError: one of them can't be used.
    """
    from winlab.supply.media import drivers, extras, wim_drivers

    there = partial(wim_drivers.of, medium, node.windows.image_name)
    files: dict[str, bytes | Path] = {**extras.stage(node, stock)}
    if (iso := windows_media.drivers_file(node.windows, stock)) is not None:
        progress.say("staging drivers")
        cache.verify_file(iso, progress)
        files |= drivers.stage(iso, node.windows.release, node.bus, node.nic, there=there)
    elif (folder := recipes.get(node.image).virtio_drivers) is not None:
        files |= drivers.stage(medium, node.windows.release, node.bus, node.nic, folder, there=there)
    if node.windows.openssh is not None:
        files[answer.OPENSSH] = stock.require(node.windows.openssh)
    return files


def _make_media(run: Run, node: WindowsNode, progress: Progress) -> None:
    from winlab.supply.media import noprompt

    volume = node.volume("media")
    assert volume.backing is not None
    medium = media.of(run, node, progress)
    with run.folder.staging() as folder:
        overlay = folder / "media.qcow2"
        noprompt.make(medium, overlay, run.on(node).pool.path(volume.backing))
        run.on(node).pool.upload(volume.name, overlay)


def needs_key(run: Run, node: WindowsNode) -> bool:
    """Whether the medium's boot loader asks for a key, and winlab can't prevent that."""
    if node.firmware != "uefi" or not node.has("media"):
        return False
    medium = windows_media.at_hand(node, run.stock)
    return medium is not None and medium.exists() and windows_iso.must_have_a_key(medium)


def detach(run: Run, node: WindowsNode) -> Step:
    """The step that removes the installation's CDs from a node that is ready.

    Setup reads an answer file again if it finds one (after sysprep), and this one contains secrets.
    """
    names = [volume.name for volume in node.volumes if volume.role in ("answer", "media")]

    def there() -> list[str]:
        # the CD with Kubernetes stays: it is put into one of the drives afterwards
        cds = devices.inserted(run.on(node).conn, node)
        return [target for target, path in cds.items() if path.name in names]

    def work(progress: Progress) -> None:
        for target in there():
            progress.say(f"taking out the CD in {target}")
            devices.eject(run.on(node).conn, node, target)
        for name in names:
            run.on(node).pool.delete(name)

    def done() -> bool:
        left = [name for name in names if run.on(node).pool.exists(name)]
        return not left and not there()

    return Step(DRIVE_FREE(run.lab, node.name), work, done, after=[BOOTED(run.lab, node.name)], usual=1)
