"""What libvirt's hook does for a clone: it gives the machine a snapshot's memory. It runs without winlab.

memory_hook.py installs this file below a few lines of shell. It runs as root, with the system's Python (3.9 or later),
while libvirt starts a domain whose metadata has this element:

    <memory xmlns="urn:winlab:memory:1" lab="LAB" volume="ORIGIN@SNAPSHOT.NODE.memory"/>

By then libvirt has made the folder for the domain's memory. The volume is linked into it as ``pc.ram``, which QEMU maps
privately: what the guest writes goes to memory of its own. Every member of the group libvirt can define such a domain.
So everything is checked here, and a machine that fails a check does not start.
"""

import errno
import os
import re
import stat
import sys
from xml.etree import ElementTree

MARK = "urn:winlab:memory:1"
MOST = 1 << 20  # bytes of a domain's XML
NAME = "[a-z][a-z0-9-]*"
VOLUME = re.compile(rf"{NAME}@{NAME}\.({NAME})\.memory")
BACKING = {"source": {"type": "file"}, "access": {"mode": "private"}}
OTHER_MEMORY = ("maxMemory", "cpu/numa", "devices/memory")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe keeps no one waiting
LABEL = "security.selinux"


class Refused(Exception):
    """Why a machine does not get the memory that it asks for."""


def check(holds: bool, why: str) -> None:
    """Refuse the memory unless something *holds*."""
    if not holds:
        raise Refused(why)


def give(name: str, xml: bytes, pool: str, ram: str) -> None:
    """Link the memory that a domain asks for into its folder; do nothing if it asks for none.

    :param name: the domain's, as libvirt gives it to its hooks.
    :param pool: the folder of winlab's storage pool.
    :param ram: libvirt's folder of memory files. A domain's folder in it is named after its id and its name's first 20
        characters (virDomainDefGetShortName in libvirt's src/conf/domain_conf.c).
    :raises Refused: it must not get it.
    :raises OSError: a file or folder can't be opened, changed or linked.
    """
    check(len(xml) <= MOST, "the machine's XML is too long")
    check(b"<!DOCTYPE" not in xml, "the machine's XML has a document type")
    domain = ElementTree.fromstring(xml)  # noqa: S314 - without a document type, nothing in it can be expanded
    asked = domain.find(f"metadata/{{{MARK}}}memory")
    if asked is None:
        return
    volume, lab, number = asked.get("volume", ""), asked.get("lab", ""), domain.get("id", "")
    match = VOLUME.fullmatch(volume)
    if match is None:
        raise Refused(f"{volume!r} is not the name of a snapshot's memory")
    is_ours = re.fullmatch(NAME, lab) is not None and name == domain.findtext("name") == f"winlab-{lab}.{match[1]}"
    check(is_ours, f"a machine of this name is not that node of the lab {lab!r}")
    check(re.fullmatch("[0-9]+", number) is not None, "libvirt has given the machine no id")
    memory = domain.find("memory[@unit='KiB']")
    size = memory.text if memory is not None else None
    if size is None or re.fullmatch("[0-9]+", size) is None:
        raise Refused("the size of the machine's memory is unknown")
    check_devices(domain)
    link(pool, volume, int(size) << 10, ram, f"{number}-{name[:20]}")


def check_devices(domain: ElementTree.Element) -> None:
    """Check that a domain has this one memory, which it can only map privately, and nothing that writes to the file."""
    backing = {one.tag: one.attrib for one in domain.iterfind("memoryBacking/*")}
    check(backing == BACKING, "its memoryBacking is not just a file with private access: it could change the snapshot")
    others = [path for path in OTHER_MEMORY if domain.find(path) is not None]
    check(not others, f"it has more than one memory ({', '.join(others)})")
    # QEMU takes pages of a balloon out of the file, also if it is mapped privately: ram_block_discard_range in its
    # system/physmem.c. The guest chooses the pages, so it could change the snapshot and the other clones.
    balloons = [one.get("model") for one in domain.iterfind("devices/memballoon")]
    check(balloons == ["none"], "it has a memory balloon, with which the guest could change the snapshot")


def link(pool: str, volume: str, size: int, ram: str, folder: str) -> None:
    """Link a volume of *size* bytes as ``pc.ram`` into the domain's folder, and give it to the folder's owner.

    What was checked is what is linked, because both are done with the open file.
    """
    source = os.open(pool, FOLDER)
    about = os.fstat(source)
    check(about.st_uid == os.geteuid() and not about.st_mode & 0o022, f"others than root can change '{pool}'")
    file = os.open(volume, FILE, dir_fd=source)
    place = os.open(folder, FOLDER, dir_fd=os.open(ram, FOLDER))
    status, owner = os.fstat(file), os.fstat(place)
    check(stat.S_ISREG(status.st_mode), f"'{volume}' is not a regular file")
    check(status.st_uid in (os.geteuid(), owner.st_uid), f"'{volume}' belongs to another user")
    check(status.st_size == size, f"'{volume}' has {status.st_size} bytes, the machine's memory {size}")
    check(not os.listdir(place), f"'{ram}/{folder}' is not empty")  # noqa: PTH208 - an open folder
    try:
        os.link(f"/proc/self/fd/{file}", "pc.ram", dst_dir_fd=place, follow_symlinks=True)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise Refused(f"'{pool}' and '{ram}' are on different file systems") from error
    os.fchmod(file, 0o600)
    os.fchown(file, owner.st_uid, owner.st_gid)  # QEMU opens it for writing, but writes nothing
    label(file, place)


def label(file: int, folder: int) -> None:
    """Give the file the folder's SELinux label, if it has one, without the categories of this one machine.

    Several clones open the file at once. libvirt labels shared disks in the same way.
    """
    try:
        context = os.getxattr(folder, LABEL)
    except OSError:
        return  # no SELinux
    os.setxattr(file, LABEL, b":".join(context.rstrip(b"\0").split(b":")[:4]) + b"\0")


def main(name: str, pool: str, ram: str) -> int:
    """Read the domain's XML from the standard input; the exit code. libvirt shows what is written as an error."""
    try:
        give(name, sys.stdin.buffer.read(MOST + 1), pool, ram)
    except (Refused, ElementTree.ParseError) as error:
        why = str(error)
    except OSError as error:
        why = f"{error.strerror}: '{error.filename}'"
    else:
        return 0
    sys.stderr.write(f"winlab's hook gives {name!r} no memory of a snapshot: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
