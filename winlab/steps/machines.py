"""Steps that make a node's volumes and start its domain."""

from __future__ import annotations

from collections.abc import Callable

from winlab.adapters.vm import disks, domains, power
from winlab.design.plan import volume_names
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain as domain_file
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import GuestError, NotFoundError, logs
from winlab.events import Progress
from winlab.steps import screens, systems, volumes
from winlab.steps.crashed import tell_crash
from winlab.steps.cut_off import has_disk, is_cut_off
from winlab.steps.paused import await_memory, require_writable_disk
from winlab.steps.states import DISK, DRIVE_FREE, IMAGE, NETWORK, STARTED


def steps(run: Run, node: NodePlan) -> list[Step]:
    """The steps for one node: its disk, the other volumes that its first boot reads, and its domain."""
    own = systems.of(run, node)

    def make_disk(progress: Progress) -> None:
        volume = disks.live(run.on(node), node)
        progress.say(f"{node.disk_mib >> 10} GiB, thin")
        run.on(node).pool.create_disk(volume.name, volume.capacity_mib, volume.backing)

    image = IMAGE(of=node.volume("base").name, host=node.hypervisor)
    disk = volumes.step(run, node, DISK, make_disk, [image], usual=1)
    parts = [disk, *own.first_boot()]
    start = Step(
        STARTED(run.lab, node.name),
        _starter(run, node),
        _runs(run, node),
        after=[NETWORK(run.lab), *(part.reaches for part in parts)],
        also=[] if own.detach() else [DRIVE_FREE(run.lab, node.name)],
        usual=3,
    )
    return [*parts, start]


def _runs(run: Run, node: NodePlan) -> Callable[[], bool]:
    def done() -> bool:
        # tag_of raises an error if the name is another domain's
        conn = run.on(node).conn
        return domains.tag_of(conn, node) is not None and domains.is_running(conn, node)

    return done


def _starter(run: Run, node: NodePlan) -> Callable[[Progress], None]:
    host = run.on(node)

    def work(progress: Progress) -> None:
        vnc = run.folder.credentials().nodes[node.name].vnc_password
        require_writable_disk(host, node)
        await_memory(host, node, progress)
        if domains.find(host.conn, node) is None:
            _forget_serial_log(run, node)
            if node == next((one for one in run.plan.nodes if one.role == "controller"), None):
                # its CA will be a new one. A guest's answer must never lead here: that CA would still be valid
                run.folder.kubeconfig.unlink(missing_ok=True)
            screens.forget(run.folder, node.name)
            host.pool.flush()  # what its first boot reads, and nothing makes again after a power cut
        tell_crash(host.conn, node, progress)
        if is_cut_off(run, node):
            start_over(run, node, progress)
        else:
            progress.say(f"{node.cpus} CPUs, {node.memory_mib} MiB")
            names = {node.volume("disk").name: disks.live(host, node).name}
            xml = domain_file.domain_xml(run.plan, node, vnc, host.pool.folder, names)
            domains.define(host.conn, node, xml)
            power.start(host.conn, node)
        run.outputs.put(STARTED(run.lab, node.name), True)

    return work


def start_over(run: Run, node: NodePlan, progress: Progress) -> None:
    """Start a node's machine whose first boot was cut off, with a new disk. The content of its other drives is kept.

    :raises GuestError: this command makes no disks.
    :raises NotFoundError: there is no base for it.
    """
    if run.keeps_disks:
        raise GuestError(
            f"The first boot of '{node.name}' was cut off.",
            why="Its power or its process ended meanwhile, which may have left files half written.",
            cure="Run the lab's create command again: it starts the machine over with a new disk.",
            evidence=logs(node.name, run.lab),
        )
    progress.say("its first boot was cut off, and may have left files half written: it starts over with a new disk")
    host = run.on(node)
    disk = disks.live(host, node)
    backing = disk.backing
    if has_disk(run, node) and (own := host.pool.backing(disk.name)) is not None and host.pool.is_complete(own.name):
        backing = own.name  # the base that it was made from: the plan's may be a newer one, which is not in the pool
    if backing is not None and not host.pool.is_complete(backing):
        raise NotFoundError(
            f"'{node.name}' can't get a new disk: its base volume '{backing}' is not whole in the pool.",
            why="Its first boot was cut off, and so was the base, or someone removed it.",
            cure=f"Run 'winlab destroy --lab {run.lab}', then the same command again.",
        )
    power.cut_power(host.conn, node)
    host.pool.delete(disk.name)  # a winlab killed from here on leaves a machine that starts over
    _forget_serial_log(run, node)
    host.pool.create_disk(disk.name, disk.capacity_mib, backing)
    power.start(host.conn, node)


def _forget_serial_log(run: Run, node: NodePlan) -> None:
    """Delete what an earlier machine of this name wrote, and its rotated logs: an old error would end the new boot."""
    pool = run.on(node).pool
    pool.refresh()
    for name in filter(volume_names.is_made, pool.names(domain_file.serial_log(run.lab, node.name))):
        pool.delete(name)
