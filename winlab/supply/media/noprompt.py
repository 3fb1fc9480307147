"""The overlay that makes Windows media boot without "Press any key", and leaves them byte-identical.

A qcow2 file over the ISO holds a few changed bytes: of the boot catalog for UEFI, of a file's name for BIOS. Proven
with OVMF and SeaBIOS on media of Microsoft's layout.
"""

from __future__ import annotations

from pathlib import Path

from winlab import run
from winlab.supply.media import windows_iso


def make(medium: Path, overlay: Path, backing: Path) -> None:
    """Make the overlay of *medium* as the local file *overlay*.

    :param backing: where the hypervisor will have the medium; written into the overlay, not looked at.
    :raises UsageError: the medium can't be read.
    """
    patches = windows_iso.no_prompt_patches(medium)
    overlay.unlink(missing_ok=True)
    run.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", medium.resolve(), overlay])
    writes = [
        ("-c", f"write -P {byte} {offset + index} 1")
        for offset, content in patches
        for index, byte in enumerate(content)
    ]
    if writes:
        run.run(["qemu-io", "-f", "qcow2", *(word for write in writes for word in write), overlay])
    run.run(["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", backing, overlay])
