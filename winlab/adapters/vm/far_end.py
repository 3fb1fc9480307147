"""What the host of a remote pool does itself, by ssh, because libvirt has no call for it.

``virsh`` there reads the volume from its own libvirt, as the user who connects. Nothing of it crosses the network.
"""

from __future__ import annotations

import re
import shlex

from winlab.adapters.remote import Remote
from winlab.errors import HostError

LIMIT = 600.0  # seconds in which a host writes what it has buffered
SLOWEST = 4 << 20  # bytes a second that a host reads at least
SHOWN = 500  # characters of an answer
DIGEST = re.compile(r"([0-9a-f]{64})  -\n")


def sha256(there: Remote, pool: str, name: str, length: int) -> str:
    """The SHA-256 of a volume's first bytes, computed on its host.

    :param length: how many bytes; 0: all.
    :raises HostError: ssh does not connect, or the volume can't be read there, or it takes too long.
    """
    words = ("virsh", "-q", "-c", "qemu:///system", "vol-download", "--length", str(length), "--pool", pool)
    read = shlex.join([*words, "--vol", name, "--file", "/dev/stdout"])
    # a shell has the exit code of the last program of a pipe only: what virsh reports goes beside it
    script = f"{{ {{ {read} 2>&3 || echo failed >&3; }} | sha256sum; }} 3>&1"
    said = there.call(script, LIMIT + length / SLOWEST)
    found = DIGEST.fullmatch(said)
    if found is None:
        raise HostError(
            f"'{there}' can't compute the digest of the volume '{name}'.",
            why=said.strip()[:SHOWN],
            cure=f"Run 'ssh {there} virsh -c qemu:///system vol-info --pool {pool} {name}': it must work.",
        )
    return found[1]
