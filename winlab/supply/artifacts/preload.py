"""containerd's store, made on the host with the images in it, as a disk for Linux nodes.

Importing an image means hashing and unpacking it, which takes minutes on an emulated CPU but seconds on the host. So
the host runs the nodes' containerd on a folder, imports the images, and makes a file system of the folder. Nodes get an
overlay over that disk and mount it as /var/lib/containerd. Some hosts can't do this: it needs root or a user namespace,
and a file system that can be below an overlay. There, nodes import from the payload CD themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from winlab.design.catalog.artifact import ContainerImage, Obtained
from winlab.events import Progress
from winlab.run import run, stream
from winlab.supply import intact
from winlab.supply.payload import PREFIX

LABEL = "WINLAB_STORE"
SIZE_GIB = 16  # of the file system, with room for later images; the file is as large as its content
VERSION = 1  # increment when it is made differently
# containerd is stopped by a signal and waited for: only then is its database complete. Dash does not run the trap of
# EXIT when a signal ends it: containerd would live on without its folder
_SCRIPT = """
set -eu
work=$1 containerd=$2 ctr=$3
shift 3
mkdir -p "$work/root" "$work/state"
cat >"$work/config.toml" <<END
version = 3
root = '$work/root'
state = '$work/state'
disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime',
    'io.containerd.internal.v1.opt', 'io.containerd.nri.v1.nri', 'io.containerd.runtime.v2.task']
[grpc]
  address = '$work/c.sock'
[ttrpc]
  address = '$work/c.sock.ttrpc'
END
trap 'kill "${!-}" 2>/dev/null || true' EXIT
trap 'exit 143' TERM INT HUP
"$containerd" --config "$work/config.toml" >"$work/log" 2>&1 &
daemon=$!
tries=0
until "$ctr" --address "$work/c.sock" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { tail -n 5 "$work/log"; exit 1; }
    kill -0 $daemon || { tail -n 5 "$work/log"; exit 1; }
    sleep 0.2
done
for archive; do
    echo "importing ${archive##*/}"
    "$ctr" --address "$work/c.sock" --namespace k8s.io images import --local \\
        --label io.cri-containerd.pinned=pinned "$archive" >/dev/null
done
kill $daemon
wait $daemon || true
trap - EXIT
echo 'making the file system'
mke2fs -q -t ext4 -L @LABEL@ -E lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0 \\
    -d "$work/root" "$work/store.raw" @SIZE@G
rm -rf "$work/root" "$work/state"
"""


def volume(images: Sequence[Obtained], containerd: Obtained) -> str:
    """The name of the disk with these images, made by this containerd."""
    digest = hashlib.sha256(f"{VERSION}\0{containerd.sha256}".encode())
    for image in sorted(images, key=lambda one: one.artifact.file):
        digest.update(f"\0{image.sha256}".encode())
    return f"{PREFIX}images-{digest.hexdigest()[:16]}.qcow2"


def make(
    images: Sequence[Obtained], containerd: Obtained, ctr: Obtained, target: Path, work: Path, progress: Progress
) -> None:
    """Write the disk to *target*.

    :param work: an empty folder, on a file system that can be below an overlay.
    :raises TransferError: something has changed since it was obtained; it is not run.
    :raises CommandError: this host can't do it; the message says why.
    :raises HostError: a program is missing.
    """
    assert all(isinstance(image.artifact, ContainerImage) for image in images)
    for item in (containerd, ctr, *images):
        intact.verify(item)
    script = _SCRIPT.replace("@LABEL@", LABEL).replace("@SIZE@", str(SIZE_GIB))
    # without root: a namespace in which this user is root, with the ids from /etc/subuid
    inside = [] if os.geteuid() == 0 else ["unshare", "--map-auto", "--map-root-user", "--mount"]
    archives = [image.path for image in sorted(images, key=lambda one: one.artifact.file)]
    command: list[str | Path] = [*inside, "setpriv", "--pdeathsig=TERM", "sh", "-c", script, "sh"]
    stream([*command, work, containerd.path, ctr.path, *archives], progress.say)
    progress.say("making the disk's image")
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", work / "store.raw", target])
