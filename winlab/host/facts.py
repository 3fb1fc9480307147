"""What ``winlab host setup`` found on this host and chose: /etc/winlab/host.yaml.

Everyone may read the file; it contains no secrets. Without it the defaults apply (and ``recorded`` is False).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from winlab import documents, files
from winlab.adapters.remote import Remote
from winlab.design.plan.facts import DEFAULT_RESOLVERS, HostFacts
from winlab.design.plan.resolvers import is_server
from winlab.errors import HostError, UsageError
from winlab.run import find, run
from winlab.settings import HOST_FILE

# systemd-resolved writes the real upstream servers here and points /etc/resolv.conf at its own stub, 127.0.0.53
# (man systemd-resolved.service, section /ETC/RESOLV.CONF).
RESOLV_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))

_CURE = "Run 'sudo winlab host setup' on that host; it writes a new file."


def read_facts(path: Path = HOST_FILE) -> HostFacts:
    """Read the facts; the defaults if there is no file.

    :raises UsageError: the file is unreadable or invalid; the message names the line or field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return HostFacts()
    except (OSError, UnicodeDecodeError) as error:
        said = f"The host's facts '{path}' can't be read."
        raise UsageError(said, why=str(error), cure=_CURE, causes=[error]) from error
    return _parsed(text, str(path))


def read_facts_of(host: Remote) -> HostFacts:
    """Read the facts of another host by ssh; the defaults if it has no file.

    :raises HostError: ssh does not connect, or the file can't be read there.
    :raises UsageError: the file is invalid.
    """
    text = host.call(f"test ! -e {HOST_FILE} || cat {HOST_FILE}")
    return _parsed(text, f"{host}:{HOST_FILE}") if text else HostFacts()


def _parsed(text: str, where: str) -> HostFacts:
    try:
        document = documents.from_yaml(text)
        if not isinstance(document, dict):
            raise UsageError(f"The host's facts '{where}' can't be used.", why="It is not a mapping.", cure=_CURE)
        return HostFacts.model_validate({**document, "recorded": True})
    except yaml.YAMLError as error:
        raise UsageError(f"The host's facts '{where}' can't be used.", why=str(error), cure=_CURE) from error
    except ValidationError as error:
        fields = "; ".join(
            f"line {_line(text, item['loc'])}, {'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors()
        )
        raise UsageError(f"The host's facts '{where}' can't be used.", why=fields, cure=_CURE) from error


def _line(text: str, place: tuple[int | str, ...]) -> int:
    """The line of the field that *place* leads to; the file is one level deep."""
    name = str(place[0]) if place else ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(f"{name}:"):
            return number
    return 1


def write_facts(facts: HostFacts, path: Path = HOST_FILE) -> None:
    """Write the facts to the disk, readable by everyone, completely or not at all.

    :raises HostError: they can't be written.
    """
    words = facts.model_dump(exclude={"recorded"})
    text = "# Written by 'winlab host setup'. Read by every winlab command.\n" + yaml.safe_dump(words, sort_keys=False)
    try:
        files.replace_text(path, text, durable=True)
    except OSError as error:
        raise HostError(
            f"The host's facts '{path}' can't be written.",
            why=str(error),
            cure="Free some space, or make the file system writable. Then run the same command again.",
            causes=[error],
        ) from error


def parse_resolvers(text: str) -> list[str]:
    """The IPv4 name servers in a resolv.conf that guests can reach: not the host's own loopback, nor a broadcast."""
    servers = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                address = ipaddress.ip_address(words[1].split("%")[0])
            except ValueError:
                continue
            if isinstance(address, ipaddress.IPv4Address) and is_server(address) and str(address) not in servers:
                servers.append(str(address))
    return servers


def find_resolvers(
    files: tuple[Path, ...] = RESOLV_FILES, *, otherwise: Sequence[str] = DEFAULT_RESOLVERS
) -> list[str]:
    """The host's upstream DNS servers, or *otherwise* if guests could reach none of them."""
    for path in files:
        try:
            servers = parse_resolvers(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if servers:
            return servers
    return list(otherwise)


def find_nested(parameters: Path = Path("/sys/module")) -> bool:
    """Whether guests under KVM may run virtual machines themselves."""
    for module in ("kvm_intel", "kvm_amd"):
        try:
            text = (parameters / module / "parameters" / "nested").read_text(encoding="ascii")
        except OSError:
            continue
        return text.strip() in {"Y", "y", "1"}
    return False


def find_emulator_version() -> str:
    """The version of QEMU, such as ``7.2.22``; empty if it is not installed."""
    if find("qemu-system-x86_64") is None:
        return ""
    said = run(["qemu-system-x86_64", "--version"], check=False, timeout=20).stdout
    match = re.search(r"version (\d+(?:\.\d+)+)", said)
    return match.group(1) if match else ""
