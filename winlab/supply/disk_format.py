"""Checks what an image from elsewhere really is: a qcow2 file can name other files of the host, and QEMU opens them.

The header is read here first, so that no program opens what a hostile one names; then ``qemu-img info`` reads the rest
with little memory and time. A raw image must not begin like another format: a program that guesses the format would
follow its names.
Fields are those of https://gitlab.com/qemu-project/qemu/-/blob/master/docs/interop/qcow2.rst.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal

from winlab import documents, files
from winlab.errors import UsageError
from winlab.run import CommandError, run

Format = Literal["qcow2", "raw", "iso"]

MEMORY = 1 << 30  # bytes that qemu-img may take
SECONDS = 30  # of a processor
_HEADER = struct.Struct(">4sIQIIQI")  # magic, version, backing file's place and length, cluster bits, size, encryption
_INCOMPATIBLE = struct.Struct(">Q")  # the features of version 3, at byte 72
_DATA_FILE = 1 << 2
_QCOW2 = b"QFI\xfb"
# What QEMU and libvirt take for another format than raw, by its first bytes
_OTHERS = (
    *((_QCOW2, "qcow2"), (b"QED\0", "qed"), (b"KDMV", "vmdk"), (b"COWD", "vmdk"), (b"# Disk Descriptor", "vmdk")),
    *((b"vhdxfile", "vhdx"), (b"conectix", "vpc"), (b"LUKS\xba\xbe", "luks"), (b"<<< ", "vdi")),
    *((b"WithoutFreeSpace", "parallels"), (b"WithouFreSpacExt", "parallels"), (b"Bochs Virtual HD Image", "bochs")),
)


def check(path: Path, declared: Format, source: str) -> None:
    """Check that an image stands by itself and is what it is declared to be.

    :param source: where it came from, for messages.
    :raises UsageError: it can't be read, is another format, is damaged, is encrypted, or names a backing or data file.
    :raises HostError: qemu-img is missing.
    """
    if files.is_no_file(path):
        raise UsageError(f"'{source}' can't be read.", why="It is not a file.")
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise UsageError(f"'{source}' can't be read.", why=str(error), causes=[error]) from error
    actual_format = next((name for magic, name in _OTHERS if head.startswith(magic)), "raw")
    if _is_description(head):
        actual_format = "vmdk"
    wanted = "qcow2" if declared == "qcow2" else "raw"
    if actual_format != wanted:
        raise _refused(source, f"It is declared as {declared}, and begins like {actual_format}.")
    if wanted == "qcow2":
        _check_header(head, source)
        _ask(path, source)


def _is_description(head: bytes) -> bool:
    """Whether QEMU takes it for the text of a vmdk, which names other files: ``version=`` after notes and blanks."""
    for line in head.split(b"\n"):
        if line.strip(b" \r") and not line.startswith(b"#"):
            return line.startswith(b"version=")
    return False


def virtual_size(path: Path) -> int:
    """How large the disk is that a qcow2 file holds, in bytes; :func:`check` must have taken the file."""
    with path.open("rb") as file:
        return int(_HEADER.unpack(file.read(_HEADER.size))[5])


def _check_header(head: bytes, source: str) -> None:
    if len(head) < _HEADER.size:
        raise _refused(source, "Its header is cut off.")
    _, version, place, length, _, _, encryption = _HEADER.unpack_from(head)
    if version not in (2, 3) or (version == 3 and len(head) < 104):
        raise _refused(source, f"Its header is not one of qcow2's versions 2 and 3 (it says {version}).")
    if place or length:
        raise _refused(source, "It names a backing file, which would be read from this host.")
    if encryption:
        raise _refused(source, "It is encrypted.")
    if version == 3 and _INCOMPATIBLE.unpack_from(head, 72)[0] & _DATA_FILE:
        raise _refused(source, "It keeps its data in another file, which would be read from this host.")


def _ask(path: Path, source: str) -> None:
    """What QEMU itself says of the file."""
    limits = ["prlimit", f"--as={MEMORY}", f"--cpu={SECONDS}"]
    try:
        text = run([*limits, "qemu-img", "info", "--output=json", "-f", "qcow2", path.absolute()], timeout=4 * SECONDS)
        told = documents.from_json(text.stdout)
        kind, data = told["format"], dict(told.get("format-specific", {}).get("data", {}))
    except (CommandError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.why if isinstance(error, CommandError) else f"qemu-img's answer can't be read: {error}"
        raise _refused(source, why) from error
    if kind != "qcow2" or told.get("encrypted") or data.get("encrypt"):
        raise _refused(source, "QEMU says that it is encrypted, or another format.")
    if "backing-filename" in told or "full-backing-filename" in told or "data-file" in data:
        raise _refused(source, "QEMU says that it names another file.")


def _refused(source: str, why: str) -> UsageError:
    return UsageError(
        f"The image from '{source}' is refused.",
        why=why,
        cure="Use an image without a backing file; 'qemu-img convert -O qcow2' makes one from an image that you trust.",
    )
