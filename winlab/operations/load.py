"""Loads the user's own container image onto every node of its operating system, from a file or the local engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from winlab import account, files, run
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design import system
from winlab.design.contract import on_both
from winlab.design.system import SYSTEMS, SystemName
from winlab.engine.step import Step
from winlab.errors import NotFoundError, UsageError
from winlab.events import Listener, Progress
from winlab.operations import absent, look
from winlab.operations import drives as drive
from winlab.operations.carry_out import Job, Underway, carry_out, run_steps
from winlab.operations.drives import Drives
from winlab.site import Site
from winlab.steps import again
from winlab.steps.states import LOAD_CD, LOAD_READY, LOADED
from winlab.supply.artifacts import store
from winlab.supply.artifacts.oci import archive as oci

ENGINES = ("docker", "podman")  # in this order
ENDINGS = (".tar", ".tar.gz", ".tgz", ".oci")
SAVING = 900.0  # seconds that an engine gets to write an image


@dataclass(frozen=True)
class Ready:
    """An image ready for the nodes: its full name, its system, the OCI archive, and that file's SHA-256."""

    reference: str
    os: SystemName
    path: Path
    sha256: str

    @property
    def file(self) -> str:
        """Its path on the CD; short, however long the image's name is."""
        return f"images/{self.sha256[:16]}.tar"


def to_lab(lab: str, site: Site, image: str, tell: Listener, *, name: str = "") -> dict[str, list[str]]:
    """Load an image onto every node of its system; returns the nodes, by the image's full name.

    :param image: an archive, or the name of an image in the local engine.
    :param name: its name in the lab; by default its own.
    :raises NotFoundError: there is no such lab or image.
    :raises UsageError: it is not an image that a node could run; nothing was touched.
    :raises WinlabError: a node refused.
    """
    prepared: list[Ready] = []

    def ready(progress: Progress) -> None:
        prepared.extend(prepare(image, folder, name=name, progress=progress))

    def work(under: Underway) -> dict[str, list[str]]:
        machines, drives = look.find(lab, under.hypervisors), Drives(under.lab)
        nodes = nodes_for(prepared, machines)
        for machine in machines:
            drives.restore(machine)
        try:
            under.run(steps(prepared, nodes, drives), "load")
        finally:
            clean(lab, drives, machines)
        nodes_by_image: dict[str, list[str]] = {}
        for ready in prepared:
            names = [machine.tag.node for machine in nodes.get(ready.os, [])]
            nodes_by_image.setdefault(ready.reference, []).extend(names)
        return nodes_by_image

    with store.workspace() as folder:
        with site.hypervisors() as hosts:
            absent.require(lab, site, hosts)  # before an engine takes minutes to write the image
            machines = look.find(lab, hosts)
        given(image)
        if name:
            oci.full_name(name)
        members = [machine for machine in machines if machine.tag.is_member]
        if members and all(machine.state != "running" for machine in members):
            look.require_running(members[0])
        run_steps([Step(LOAD_READY(lab), ready, lambda: False, usual=5)], tell, lab, "load")
        return carry_out(Job(lab, work, must_exist=True), site, tell)


def given(image: str) -> Path | None:
    """The archive that the user named; None for the name of an image in the local engine.

    :raises NotFoundError: there is no such file.
    :raises UsageError: no image can have this name.
    """
    if not is_file(image):
        if image.startswith("-"):
            raise UsageError(f"'{image}' is not the name of an image.")
        return None
    archive = account.expanded(image)
    if not _is_there(archive) or not archive.is_file():
        raise NotFoundError(f"There is no file '{image}'.", cure="Give an OCI archive, or an image's name.")
    return archive


def is_file(image: str) -> bool:
    """Whether *image* is an archive rather than a name."""
    return image.startswith((".", "/", "~")) or image.endswith(ENDINGS) or _is_there(Path(image))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # an endless name, an inaccessible folder
        return False


def prepare(image: str, work: Path, *, name: str = "", progress: Progress) -> list[Ready]:
    """Check the image, and write it to *work* as OCI archives: one for each system that it supports.

    :param image: an OCI archive, what ``docker save`` wrote, or the name of an image in the local engine.
    :param work: an empty folder with room for it.
    :param name: its name in the lab; by default its own.
    :raises UsageError: it has no amd64 image, has no name, or *name* is not a valid one.
    :raises NotFoundError: there is no such file, or no such image in a local engine.
    :raises TransferError: the archive is damaged or truncated.
    """
    if name:
        name = oci.full_name(name)  # before an engine takes minutes to write it
    archive, wanted = given(image), name
    if archive is None:
        archive, wanted = _save(image, work / "saved.tar", progress), name or _name(image)
    progress.say(f"reading {archive.name}")
    platforms = oci.inspect(archive)
    systems = [one.name for one in SYSTEMS if (one.name, "amd64") in {(row.os, row.architecture) for row in platforms}]
    if not systems:
        raise UsageError(
            f"'{image}' is not an image for Linux or Windows on amd64.",
            why="It is for " + (", ".join(f"{row.os}/{row.architecture}" for row in platforms) or "nothing") + ".",
            cure="Build it with --platform linux/amd64.",
        )
    return [_convert(archive, os, work, wanted, progress) for os in systems]


def _convert(archive: Path, os: SystemName, work: Path, wanted: str, progress: Progress) -> Ready:
    progress.say(f"checking the image for {os}")
    target = work / f"{os}.tar"
    (work / os).mkdir()
    converted = oci.convert(archive, target, os, work=work / os, reference=wanted)
    return Ready(converted.reference, os, target, files.sha256(target))


def _name(image: str) -> str:
    """The image's name, or an empty text for an ID: then the archive's own name is used."""
    bare = image.removeprefix("sha256:")
    return "" if len(bare) >= 12 and not set(bare) - set("0123456789abcdef") else image


def _save(image: str, target: Path, progress: Progress) -> Path:
    """Have the first local engine that has the image write it to *target*.

    :raises NotFoundError: there is no engine, or no engine has it.
    """
    reasons = []
    for program in ENGINES:
        if run.find(program) is None:
            reasons.append(f"{program} is not installed.")
            continue
        progress.say(f"{program} save {image}")
        try:
            run.run([program, "save", "--output", target, image], timeout=SAVING)
        except run.CommandError as error:
            target.unlink(missing_ok=True)
            lines = (error.result.stderr or error.result.stdout).strip().splitlines()
            reasons.append(f"{program}: {lines[-1] if lines else 'it printed nothing'}")
            continue
        return target
    raise NotFoundError(
        f"There is no file '{image}', and no local image of that name.",
        why=" ".join(reasons),
        cure="Give an archive: 'docker save', 'podman save' and 'skopeo copy ... oci-archive:FILE:NAME:TAG' make one.",
    )


def nodes_for(images: Sequence[Ready], machines: Sequence[Machine]) -> dict[SystemName, list[Machine]]:
    """The nodes that get each image.

    :raises UsageError: no node runs a system that the image is for.
    :raises GuestError: one of them is off.
    """
    members = [machine for machine in machines if machine.tag.is_member]
    by_system = {image.os: [machine for machine in members if machine.tag.os == image.os] for image in images}
    by_system = {os: selected for os, selected in by_system.items() if selected}
    if not by_system:
        titles = " and ".join(system.get(image.os).title for image in images)
        raise UsageError(
            f"The image is for {titles}, but the lab has no such node.",
            cure="Build it for the system of the nodes: 'winlab status' shows them.",
        )
    for machine in (machine for selected in by_system.values() for machine in selected):
        look.require_running(machine)
    return by_system


def steps(images: Sequence[Ready], nodes: dict[SystemName, list[Machine]], drives: Drives) -> list[Step]:
    """One step for each system's CD on each hypervisor, and one for each node. :func:`clean` removes the CDs."""
    load_steps = []
    for image in images:
        if image.os in nodes:
            load_steps += [_cd(image, drives, host) for host in drives.lab.hosts(nodes[image.os])]
            load_steps += [_load(image, machine, drives) for machine in nodes[image.os]]
    return load_steps


def clean(lab: str, drives: Drives, machines: Sequence[Machine]) -> None:
    """Remove the CDs that are in no drive of these machines, all of the lab: without its CD a machine can't start."""
    for host in drives.lab.hosts(machines):
        used = {drives.inside(machine) for machine in machines if machine.hypervisor == host.name}
        for one in SYSTEMS:
            if (volume := _volume(lab, one.name)) not in used:
                host.pool.delete(volume)


def _volume(lab: str, os: SystemName) -> str:
    return f"{lab}.load-{os}.iso"


def _cd(image: Ready, drives: Drives, host: Hypervisor) -> Step:
    def write(progress: Progress) -> None:
        row = {"reference": image.reference, "sha256": image.sha256}
        listed = {"images": {image.file.removeprefix("images/"): row}}
        drives.upload(host, f"load-{image.os}", {image.file: image.path}, listed, progress)

    return Step(LOAD_CD(drives.folder.lab, of=image.os, host=host.name), write, lambda: False, usual=10)


def _load(image: Ready, machine: Machine, drives: Drives) -> Step:
    def load(progress: Progress) -> None:
        with drives.login(machine) as node:
            with drives.inserted(machine, _volume(drives.folder.lab, image.os)):
                drive.await_seen(node, image.file, progress)
                again.run(node, on_both.LoadImages(), progress, drives.is_on(machine))
            drive.await_gone(node, image.file, progress)

    lab = drives.folder.lab
    disc = LOAD_CD(lab, of=image.os, host=machine.hypervisor)
    return Step(LOADED(lab, machine.tag.node), load, lambda: False, [disc], usual=30)
