"""The memory of saved machines: kept so that copies can share it, and given to a machine that is restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from winlab.adapters.vm import guest_memory, save_image
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.guest_memory import Split, StreamError
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.model import NodePlan
from winlab.design.render import copied_domain
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.snapshots import Id, Snapshot

LARGEST_STATE = 1 << 28  # bytes: a machine's devices and its screen take some MiB
RESTORING = "restore"  # the end of the name of the volume from which a machine is restored


def store(pool: StoragePool, which: Id, node: NodePlan, progress: Progress) -> bool:
    """Split the save image of a machine into its memory and the rest, two volumes of the snapshot.

    :returns: whether it was split. The stream of an unknown QEMU can't be: the image stays whole.
    """
    image = which.volume(node.name, "save")
    progress.say(f"{node.memory_mib} MiB of memory")
    with closing(pool.chunks(image)) as chunks:
        saved = save_image.read_header(chunks)
        try:
            split = Split(saved.stream)
            with pool.filling(which.volume(node.name, "memory"), split.size) as put:
                state = b"".join(_bounded(split.state(put)))
        except StreamError as error:
            progress.say(f"its memory can't be shared: {error.why}")
            return False
    pool.write(which.volume(node.name, "state"), save_image.header(saved.xml, saved.cookie) + state)
    pool.delete(image)
    return True


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


def restore(host: Hypervisor, snapshot: Snapshot, lab: str, node: NodePlan, *, shared: bool) -> None:
    """Start a machine that is defined with the memory that was saved.

    :param shared: the memory is the snapshot's file, copy on write, which takes libvirt's hook. Otherwise all of it is
        read.
    :raises WinlabError: libvirt refuses, or the snapshot's volumes are damaged.
    """
    pool, split = host.pool, bool(snapshot.nodes[node.name].split)
    image = f"{lab}.{node.name}.{RESTORING}"
    defined = machines.definition(host.conn, node)
    memory = snapshot.volume(node.name, "memory")
    with closing(pool.chunks(snapshot.volume(node.name, "state" if split else "save"))) as chunks:
        saved = save_image.read_header(chunks)
        if shared and split:
            xml = copied_domain.with_memory(defined, lab, memory)
            pool.write(image, save_image.header(xml, saved.cookie) + b"".join(_bounded(saved.stream)))
        else:
            header = save_image.header(defined, saved.cookie)
            stream = guest_memory.merge(saved.stream, _pages(pool, memory)) if split else saved.stream
            at = len(header)
            with pool.filling(image, at + (node.memory_mib << 20) * 9 // 8 + LARGEST_STATE) as put:
                put(0, header)
                for chunk in stream:
                    put(at, chunk)
                    at += len(chunk)
    try:
        machines.restore(host.conn, node, pool.path(image))
    finally:
        pool.delete(image)


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
