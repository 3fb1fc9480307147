"""The memory of saved machines: kept so that copies can share it, and given to a machine that is restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from winlab.adapters.vm import guest_memory, power, save_image
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.guest_memory import Split, StreamError
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import copied_domain
from winlab.errors import HostError, WinlabError
from winlab.events import Progress
from winlab.snapshots import Id, Snapshot

SAMPLE = range(1 << 20, 1 << 31)  # where memory is at its own physical address, above the first MiB's holes
PAGE = 4096
LARGEST_STATE = 1 << 28  # bytes: a machine's devices and its screen take some MiB
RESTORING = "restore"  # the end of the name of the volume from which a machine is restored


@dataclass(frozen=True)
class Stored:
    """How a machine's memory is kept: see :class:`winlab.snapshots.SavedNode`."""

    split: bool
    sample: int | None = None


def store(pool: StoragePool, which: Id, node: NodePlan, progress: Progress) -> Stored:
    """Split the save image of a machine into its memory and the rest, two volumes of the snapshot.

    The stream of an unknown QEMU can't be split: the image stays whole.
    """
    image, sample = which.volume(node.name, "save"), None
    progress.say(f"{node.memory_mib} MiB of memory")
    with closing(pool.chunks(image)) as chunks:
        saved = save_image.read_header(chunks)
        try:
            split = Split(saved.stream)
            with pool.filling(which.volume(node.name, "memory"), split.size) as put:

                def keep(offset: int, content: bytes) -> None:
                    nonlocal sample
                    if sample is None and offset in SAMPLE and any(content[:PAGE]):
                        sample = offset
                    put(offset, content)

                state = b"".join(_bounded(split.state(keep)))
        except StreamError as error:
            progress.say(f"its memory can't be shared: {error.why}")
            return Stored(split=False)
    pool.write(which.volume(node.name, "state"), save_image.header(saved.xml, saved.cookie) + state)
    pool.delete(image)
    return Stored(True, None if copied_domain.has_balloon(saved.xml) else sample)


def definition(pool: StoragePool, snapshot: Snapshot, node: str) -> str:
    """The XML of a saved machine.

    :raises NotFoundError: the snapshot's volumes are gone.
    :raises WinlabError: they are damaged.
    """
    split = snapshot.nodes[node].split
    if split is None:
        with closing(pool.chunks(snapshot.volume(node, "xml"))) as chunks:
            return b"".join(_bounded(chunks)).decode()
    with closing(pool.chunks(snapshot.volume(node, "state" if split else "save"))) as chunks:
        return save_image.read_header(chunks).xml


def restore(
    host: Hypervisor, snapshot: Snapshot, lab: str, node: NodePlan, *, shared: bool, source: StoragePool | None = None
) -> None:
    """Start a machine that is defined with the memory that was saved.

    :param shared: the memory is the snapshot's file, copy on write, which takes libvirt's hook. Otherwise all of it is
        read.
    :param source: the pool that has the memory; by default the hypervisor's own. Only that one can be shared.
    :raises WinlabError: libvirt refuses, or the snapshot's volumes are damaged. The machine is off.
    """
    pool, saved_node = host.pool, snapshot.nodes[node.name]
    source = source or pool
    image, memory = f"{lab}.{node.name}.{RESTORING}", snapshot.volume(node.name, "memory")
    defined = machines.definition(host.conn, node)
    with closing(source.chunks(snapshot.volume(node.name, "state" if saved_node.split else "save"))) as chunks:
        saved = save_image.read_header(chunks)
        if shared:
            xml = copied_domain.with_memory(defined, lab, memory)
            pool.write(image, save_image.header(xml, saved.cookie) + b"".join(_bounded(saved.stream)))
        else:
            whole = guest_memory.merge(saved.stream, _pages(source, memory)) if saved_node.split else saved.stream
            at, room = 0, (node.memory_mib << 20) * 9 // 8 + LARGEST_STATE
            with pool.filling(image, room) as put:
                for chunk in chain([save_image.header(defined, saved.cookie)], whole):
                    put(at, chunk)
                    at += len(chunk)
    try:
        machines.restore(host.conn, node, pool.path(image))
        if shared:
            _require_shared(host, node, memory, saved_node.sample)
        power.resume(host.conn, node)
    except BaseException:
        power.cut_power(host.conn, node)
        raise
    finally:
        pool.delete(image)


def _require_shared(host: Hypervisor, node: NodePlan, memory: str, sample: int | None) -> None:
    """Check that the guest has its memory: libvirt does not report it if it did not run the hook.

    :raises HostError: its memory is empty.
    """
    assert sample is not None
    if machines.memory_at(host.conn, node, sample, PAGE) != host.pool.download(memory, sample, PAGE):
        raise HostError(
            f"'{node.name}' did not get its memory.",
            why="libvirt did not run winlab's hook, or ran another one.",
            cure="Run 'sudo winlab host setup', which installs it, then the same command again.",
        )


def _pages(pool: StoragePool, name: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    with closing(pool.chunks(name)) as chunks:
        for chunk in chunks:
            yield at, chunk
            at += len(chunk)


def _bounded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > LARGEST_STATE:
            raise WinlabError(
                f"The state of a saved machine has more than {LARGEST_STATE >> 20} MiB.",
                cure="Save the lab again. If you imported the snapshot, import it again.",
            )
        yield chunk
