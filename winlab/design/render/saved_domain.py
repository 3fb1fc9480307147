"""Checks the definition of a saved machine that someone else wrote: what of it would reach libvirt. Pure.

libvirt runs as root. A domain's definition can name any file, socket, device or program of the host, so everything that
is not listed here is refused. :mod:`winlab.design.render.copied_domain` replaces names, files of drives, logs and
passwords; this module covers the rest, which a copy takes over as it is.

Elements are those that winlab renders (:mod:`winlab.design.render.domain`), and those that libvirt adds to them.
Source: libvirt's domain format, and virDomainDefFormatInternal in src/conf/domain_conf.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lxml import etree

from winlab import settings
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.errors import UsageError

# Which elements may be in which, by their paths; others have none. "*": any, as long as their values are plain, because
# there libvirt describes only what a guest sees
INSIDE: Mapping[str, frozenset[str]] = {
    path: frozenset(inner.split())
    for path, inner in {
        "domain": "name uuid title metadata memory currentMemory memoryBacking vcpu resource os features cpu clock "
        "on_poweroff on_reboot on_crash pm devices",
        "domain/resource": "partition",
        "domain/os": "type firmware loader nvram boot",
        "domain/os/firmware": "*",
        "domain/features": "*",
        "domain/cpu": "*",
        "domain/clock": "*",
        "domain/pm": "*",
        "domain/devices": "emulator disk controller interface serial console channel input graphics audio video "
        "memballoon rng panic watchdog",
        "domain/devices/disk": "driver source backingStore target readonly boot address alias",
        "domain/devices/controller": "*",
        "domain/devices/interface": "mac source virtualport target model driver mtu address alias",
        "domain/devices/interface/virtualport": "parameters",
        "domain/devices/interface/driver": "host guest",
        "domain/devices/serial": "log target address alias",
        "domain/devices/serial/target": "model",
        "domain/devices/console": "log target address alias",
        "domain/devices/channel": "target address alias",
        "domain/devices/input": "address alias",
        "domain/devices/graphics": "listen",
        "domain/devices/video": "model address alias",
        "domain/devices/memballoon": "stats address alias",
        "domain/devices/rng": "backend rate address alias",
        "domain/devices/panic": "address alias",
        "domain/devices/watchdog": "address alias",
    }.items()
}
# What copied_domain replaces or removes, whatever is in it
REPLACED = frozenset(
    f"domain/{path}" for path in ("metadata", "memoryBacking", "name", "title", "uuid", "devices/disk/backingStore")
)
ONCE = ("name", "uuid", "metadata", "memory", "vcpu", "os", "devices")
AT_MOST_ONCE = ("title", "currentMemory", "memoryBacking", "os/loader", "os/nvram")
PLAIN = re.compile(r"[A-Za-z0-9_.:,+ \n-]*")  # no path, and nothing that separates an option of QEMU
FIRMWARE = re.compile(r"/usr/share/(?:[A-Za-z0-9_+-][A-Za-z0-9_.+-]*/)*[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")
ANY = re.compile(r"(?s).*")  # what copied_domain replaces
# Values that are not plain, by their places: paths of elements (their texts), or of their attributes
VALUES: Mapping[str, re.Pattern[str]] = {
    "domain@type": re.compile("kvm|qemu"),
    "domain/resource/partition": re.compile("/machine"),
    "domain/on_poweroff": re.compile("destroy|restart"),
    "domain/on_reboot": re.compile("destroy|restart"),
    "domain/on_crash": re.compile("destroy|restart|preserve"),  # the others write files of the guest's memory
    "domain/os/loader": FIRMWARE,
    "domain/os/loader@readonly": re.compile("yes"),
    "domain/os/nvram": ANY,
    "domain/os/nvram@template": FIRMWARE,
    "domain/devices/emulator": re.compile("/usr/(bin|libexec)/(qemu-system-x86_64|qemu-kvm|kvm)"),
    "domain/devices/disk@type": re.compile("file"),
    "domain/devices/disk@device": re.compile("disk|cdrom"),
    "domain/devices/disk/source@file": ANY,
    "domain/devices/interface@type": re.compile("bridge"),
    "domain/devices/interface/source@bridge": re.compile(re.escape(settings.INTEGRATION_BRIDGE)),
    "domain/devices/interface/virtualport@type": re.compile("openvswitch"),
    "domain/devices/serial@type": re.compile("pty"),
    "domain/devices/serial/log@file": ANY,
    "domain/devices/console@type": re.compile("pty"),
    "domain/devices/console/log@file": ANY,
    "domain/devices/channel@type": re.compile("unix"),
    "domain/devices/input@type": re.compile("tablet|mouse|keyboard"),
    "domain/devices/graphics@type": re.compile("vnc"),
    "domain/devices/graphics@listen": re.compile(r"127\.0\.0\.1"),
    "domain/devices/graphics@passwd": ANY,
    "domain/devices/graphics/listen@type": re.compile("address"),
    "domain/devices/graphics/listen@address": re.compile(r"127\.0\.0\.1"),
    "domain/devices/audio@type": re.compile("none"),
    "domain/devices/rng/backend": re.compile("/dev/u?random"),
    "domain/devices/rng/backend@model": re.compile("random"),
    "domain/devices/watchdog@action": re.compile("reset|none|poweroff|shutdown"),
}
# Attributes that these elements must have, and all that they may have
NEEDED: Mapping[str, tuple[str, ...]] = {
    "domain": ("type",),
    "domain/os/loader": ("readonly",),
    "domain/devices/disk": ("type", "device"),
    "domain/devices/interface": ("type",),
    "domain/devices/interface/source": ("bridge",),
    "domain/devices/interface/virtualport": ("type",),
    "domain/devices/serial": ("type",),
    "domain/devices/console": ("type",),
    "domain/devices/channel": ("type",),
    "domain/devices/input": ("type",),
    "domain/devices/graphics": ("type", "listen"),
    "domain/devices/audio": ("type",),
    "domain/devices/rng/backend": ("model",),
}
ALLOWED: Mapping[str, frozenset[str]] = {
    "domain": frozenset({"type", "id"}),
    "domain/os/nvram": frozenset({"template", "templateFormat", "format"}),
    "domain/devices/disk": frozenset({"type", "device", "model", "snapshot"}),
    "domain/devices/disk/source": frozenset({"file", "index"}),
    "domain/devices/interface/source": frozenset({"bridge"}),
    "domain/devices/graphics": frozenset({"type", "port", "autoport", "listen", "passwd", "sharePolicy"}),
}
BYTES = {"b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def check(saved: str, node: NodePlan, formats: Mapping[str, str]) -> None:
    """Check that a machine's definition gives its copies nothing of the host but what a machine of winlab has.

    :param formats: of what the snapshot has for the machine's drives, by target: ``qcow2`` or ``raw``.
    :raises UsageError: it has something else, or is not the definition of *node*.
    """
    root = parsed(saved, node.name)
    for why in _problems(root, node, formats):
        raise refused(node.name, why)


def check_cookie(cookie: str, node: str) -> None:
    """Check what libvirt keeps beside the definition: a processor, and a mark.

    :raises UsageError: there is something else in it.
    """
    if not cookie:
        return
    root = parsed(cookie, node)
    if root.tag != "cookie" or any(one.tag not in ("cpu", "slirpHelper") for one in root):
        raise refused(node, "libvirt's cookie has something else than a processor.")
    for why in _plain(root, "cookie"):
        raise refused(node, why)


def parsed(text: str, node: str) -> etree._Element:
    """XML without anything that makes a parser read other files, or expand texts.

    :raises UsageError: it can't be read, or has such a thing. What is left is elements, attributes and text.
    """
    if "<!" in text or "<?" in text:
        raise refused(node, "Its XML has a document type, comment or instruction, which libvirt does not write.")
    try:
        return etree.fromstring(text.encode(), etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise refused(node, f"Its XML can't be read: {error}") from error


def refused(node: str, why: str) -> UsageError:
    """The error for a saved machine that is not taken."""
    return UsageError(
        f"The saved machine '{node}' is refused.",
        why=why,
        cure="Only machines as winlab makes them are imported. If yours was changed, change it back, save the lab, and "
        "export that snapshot.",
    )


def _problems(root: etree._Element, node: NodePlan, formats: Mapping[str, str]) -> Iterator[str]:
    if root.tag != "domain":
        yield "It is not a domain."
        return
    yield from _walk(root, "domain")
    for one in root.iterfind("metadata/*"):
        if not one.tag.startswith(f"{{{tags.NAMESPACE}"):
            yield f"Its metadata has {one.tag}, which is not winlab's."
    for tag in (*ONCE, *AT_MOST_ONCE):
        number = len(root.findall(tag))
        if number > 1 or (number == 0 and tag in ONCE):
            yield f"It has {number} times {tag}."
            return
    for tag in ("memory", "currentMemory"):
        for memory in root.findall(tag):
            said = str(memory.text or "").strip()
            size = int(said) * BYTES.get(memory.get("unit", "KiB"), 0) if re.fullmatch("[0-9]{1,15}", said) else 0
            if size != node.memory_mib << 20:
                yield f"Its {tag} is not {node.memory_mib} MiB."
    if (root.findtext("vcpu") or "").strip() != str(node.cpus):
        yield f"It does not have {node.cpus} CPUs."
    yield from _nic_problems(root, node)
    yield from _drive_problems(root, formats)


def _nic_problems(root: etree._Element, node: NodePlan) -> Iterator[str]:
    nics = root.findall("devices/interface")
    macs = [str(one.find("mac").get("address")) for one in nics if one.find("mac") is not None]
    ports = root.findall("devices/interface/virtualport/parameters")
    if len(nics) != 1 or len(root.findall("devices/interface/source")) != 1 or len(ports) != 1:
        yield "It does not have exactly one network interface at a port of a switch."
    if macs != [node.mac]:
        yield f"Its network interface does not have the MAC {node.mac}."


def _drive_problems(root: etree._Element, formats: Mapping[str, str]) -> Iterator[str]:
    found = {}
    for disk in root.findall("devices/disk"):
        targets, sources, drivers = (disk.findall(tag) for tag in ("target", "source", "driver"))
        if len(targets) != 1 or len(sources) > 1 or len(drivers) > 1:
            yield "A drive has more than one target, source or driver."
            return
        target, form = str(targets[0].get("dev")), drivers[0].get("type") if drivers else None
        if target in found:
            yield f"It has two drives '{target}'."
        if sources:
            found[target] = form
    if found != dict(formats):
        yield f"Its drives have {_shown(found)}, and the snapshot has {_shown(formats)}."


def _shown(formats: Mapping[str, str | None]) -> str:
    return ", ".join(f"{form or 'nothing'} in {target}" for target, form in sorted(formats.items())) or "nothing"


def _walk(one: etree._Element, path: str) -> Iterator[str]:
    """What is wrong with an element, whose path is listed, and with what is in it."""
    if path in REPLACED:
        return
    yield from _value_problems(one, path)
    inner = INSIDE.get(path, frozenset())
    for child in one:
        if "}" in child.tag or (child.tag not in inner and "*" not in inner):
            yield f"It has {child.tag} in {path}, which no machine of winlab has."
        elif "*" in inner:
            yield from _plain(child, f"{path}/{child.tag}")
        else:
            yield from _walk(child, f"{path}/{child.tag}")


def _plain(one: etree._Element, path: str) -> Iterator[str]:
    """What is wrong with an element whose values must be plain, and with what is in it."""
    yield from _value_problems(one, path)
    for child in one:
        if "}" in child.tag:
            yield f"It has {child.tag} in {path}, which no machine of winlab has."
        else:
            yield from _plain(child, f"{path}/{child.tag}")


def _value_problems(one: etree._Element, path: str) -> Iterator[str]:
    for name in NEEDED.get(path, ()):
        if name not in one.attrib:
            yield f"{path} has no {name}."
    values = {f"{path}@{name}": str(value) for name, value in one.attrib.items()}
    values[path] = "".join([one.text or "", *(child.tail or "" for child in one)]).strip()
    for name in one.attrib:
        if path in ALLOWED and name not in ALLOWED[path]:
            yield f"{path} has the attribute {name}, which no machine of winlab has."
    for place, value in values.items():
        if not VALUES.get(place, PLAIN).fullmatch(value):
            yield f"{place} is {value[:100]!r}."
