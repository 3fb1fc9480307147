"""Commands about the network. They use the real network and print their results as Windows does."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import time
from typing import TYPE_CHECKING

from winlab_standin.guest import cmdline, firewall
from winlab_standin.guest.base import StandinError, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab_standin.guest.shell import Shell, Streams
    from winlab_standin.guest.world import Adapter

DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def address(name: str) -> str | None:
    """The IPv4 address of a name, by the system's resolver."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError:
        return None


def hostname(shell: Shell, rest: str, streams: Streams) -> int:
    """``hostname``."""
    if rest.strip():
        streams.err("sethostname: Use the Network Control Panel Applet to set hostname.\r\n")
        return 1
    streams.out(f"{shell.world.name()}\r\n")
    return 0


def ping(shell: Shell, rest: str, streams: Streams) -> int:
    """``ping [-n COUNT] [-w MS] [-l SIZE] [-f] [-4] [-t] HOST``."""
    words = cmdline.split(rest)
    options, host, at = {"n": 4, "w": 4000, "l": 32}, "", 0
    flags: set[str] = set()
    while at < len(words):
        word = words[at]
        flag = word[1:].lower() if word[:1] in "-/" else ""
        if flag in options:
            value = words[at + 1] if at + 1 < len(words) else ""
            if not value.isdigit():
                streams.out(f"Value must be supplied for option {word}.\r\n")
                return 1
            options[flag] = int(value)
            at += 1
        elif flag in ("f", "4", "t", "a"):
            flags.add(flag)
        elif flag or host:
            streams.out(f"Bad option {word}.\r\n" if flag else f"Bad parameter {word}.\r\n")
            return 1
        else:
            host = word
        at += 1
    target = address(host) if host else None
    if target is None:
        streams.out(f"Ping request could not find host {host}. Please check the name and try again.\r\n")
        return 1
    shown = target if target == host else f"{host} [{target}]"
    streams.out(f"\r\nPinging {shown} with {options['l']} bytes of data:\r\n")
    return _ping(shell, streams, target, options, flags)


def _ping(shell: Shell, streams: Streams, target: str, options: dict[str, int], flags: set[str]) -> int:
    sent, times, replies = 0, [], 0
    arguments = ["-n", "-c", "1", "-W", str(max(options["w"], 100) / 1000), "-s", str(options["l"])]
    arguments += ["-M", "do"] if "f" in flags else ["-M", "dont"]
    while sent < options["n"] or "t" in flags:
        shell.check()
        begun = time.monotonic()
        result = run(["ping", *arguments, target], check=False)
        sent += 1
        reply = re.search(r"from ([\d.]+): icmp_seq=\d+ ttl=(\d+)(?: time=([\d.]+))?", result.stdout)
        other = re.search(r"From ([\d.]+) .*?(Destination \w+ Unreachable|Time to live exceeded)", result.stdout)
        if reply:
            replies += 1
            took = float(reply[3] or 0)
            times.append(took)
            lasted = "<1ms" if took < 1 else f"={int(took)}ms"
            streams.out(f"Reply from {reply[1]}: bytes={options['l']} time{lasted} TTL={reply[2]}\r\n")
        elif "too long" in result.stdout + result.stderr or "needed and DF set" in result.stdout:
            streams.out("Packet needs to be fragmented but DF set.\r\n")
        elif other:
            streams.out(
                f"Reply from {other[1]}: {other[2].replace('Unreachable', 'unreachable').replace('Host', 'host')}.\r\n"
            )
        elif "unreachable" in result.stderr.lower():
            streams.out("PING: transmit failed. General failure.\r\n")
        else:
            streams.out("Request timed out.\r\n")
        if sent < options["n"] or "t" in flags:
            time.sleep(max(0.0, 1 - (time.monotonic() - begun)))
    lost = sent - replies
    streams.out(
        f"\r\nPing statistics for {target}:\r\n    Packets: Sent = {sent}, Received = {replies}, "
        f"Lost = {lost} ({100 * lost // max(sent, 1)}% loss),\r\n"
    )
    if times:
        low, high, mean = int(min(times)), int(max(times)), int(sum(times) / len(times))
        streams.out(
            "Approximate round trip times in milli-seconds:\r\n"
            f"    Minimum = {low}ms, Maximum = {high}ms, Average = {mean}ms\r\n"
        )
    return 0 if replies else 1


def query(name: str, server: str, timeout: float = 3.0) -> list[str] | None:
    """Ask a DNS server for the IPv4 addresses of a full name (RFC 1035); None if the name does not exist.

    :raises OSError: it does not answer.
    """
    labels = b"".join(bytes([len(part)]) + part.encode("idna") for part in name.rstrip(".").split("."))
    packet = struct.pack(">6H", 0x574C, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(timeout)
        sock.sendto(packet, (server, 53))
        return answers(sock.recv(4096))


def answers(packet: bytes) -> list[str] | None:
    """The IPv4 addresses in a DNS answer; None if it has an error."""
    _, flags, questions, count = struct.unpack(">4H", packet[:8])
    if flags & 0xF:
        return None
    at, found = 12, []
    for _ in range(questions):
        at = _skip(packet, at) + 4
    for _ in range(count):
        at = _skip(packet, at)
        kind, _, _, size = struct.unpack(">2HIH", packet[at : at + 10])
        at += 10
        if kind == 1 and size == 4:
            found.append(str(ipaddress.IPv4Address(packet[at : at + 4])))
        at += size
    return found


def _skip(packet: bytes, at: int) -> int:
    while packet[at]:
        if packet[at] & 0xC0:
            return at + 2
        at += packet[at] + 1
    return at + 1


def nslookup(shell: Shell, rest: str, streams: Streams) -> int:
    """``nslookup NAME [SERVER]``."""
    words = cmdline.split(rest)
    if any(word.startswith("-") for word in words) or len(words) > 2:
        streams.err("*** The stand-in's nslookup knows no options: nslookup NAME [SERVER]\r\n")
        return 1
    servers, domains = shell.world.resolver()
    server = (address(words[1]) or "") if len(words) > 1 else (servers[0] if servers else "")
    if not words or not server:
        streams.err("*** Default servers are not available\r\n")
        return 1
    streams.out(f"Server:  UnKnown\r\nAddress:  {server}\r\n\r\n")
    short = "." not in words[0].rstrip(".")
    names = [f"{words[0]}.{domain}" for domain in domains] if short else []
    try:
        for name in [*names, words[0]]:
            found = query(name, server)
            if found:
                label = "Address:  " if len(found) == 1 else "Addresses:  "
                streams.out(f"Name:    {name.rstrip('.')}\r\n{label}" + "\r\n\t  ".join(found) + "\r\n\r\n")
                return 0
    except OSError:
        streams.out("DNS request timed out.\r\n    timeout was 2 seconds.\r\n")
        streams.err("*** Request to UnKnown timed-out\r\n")
        return 1
    streams.err(f"*** UnKnown can't find {words[0]}: Non-existent domain\r\n")
    return 1


def ipconfig(shell: Shell, rest: str, streams: Streams) -> int:
    """``ipconfig [/all]``."""
    flag = rest.strip().lower()
    if flag not in ("", "/all"):
        streams.err(
            f"Error: unrecognized or incomplete command line.\r\n\r\nUSAGE:\r\n    ipconfig [/all]  ({flag})\r\n"
        )
        return 1
    servers, domains = shell.world.resolver()
    streams.out("\r\nWindows IP Configuration\r\n\r\n")
    if flag:
        streams.out(
            f"{_label('Host Name')}{shell.world.name()}\r\n{_label('Primary Dns Suffix')}\r\n"
            f"{_label('Node Type')}Hybrid\r\n{_label('IP Routing Enabled.')}No\r\n"
            f"{_label('DNS Suffix Search List.')}{' '.join(domains)}\r\n"
        )
    for number, adapter in enumerate(shell.world.adapters(), 1):
        name = "Ethernet" if number == 1 else f"Ethernet {number}"
        streams.out(f"\r\nEthernet adapter {name}:\r\n\r\n{_adapter(adapter, bool(flag), servers)}")
    return 0


def _label(text: str) -> str:
    dots = "".join(" ." if place % 2 == 0 else "" for place in range(len(text), 33))
    return f"   {(text + dots).ljust(34)[:34]}: "


def _adapter(adapter: Adapter, everything: bool, servers: list[str]) -> str:
    lines = [f"{_label('Connection-specific DNS Suffix')}{adapter.lease.get('domain', '')}"]
    if everything:
        lines.append(f"{_label('Description')}Red Hat VirtIO Ethernet Adapter")
        lines.append(f"{_label('Physical Address')}{adapter.mac.upper().replace(':', '-')}")
        lines.append(f"{_label('DHCP Enabled')}{'Yes' if adapter.lease else 'No'}")
    for one, length in adapter.addresses:
        if ":" in one:
            lines.append(f"{_label('Link-local IPv6 Address')}{one}")
        else:
            mask = ipaddress.ip_network(f"0.0.0.0/{length}").netmask
            lines.append(f"{_label('IPv4 Address')}{one}{'(Preferred)' if everything else ''}")
            lines.append(f"{_label('Subnet Mask')}{mask}")
    lines.append(f"{_label('Default Gateway')}{adapter.lease.get('router', '')}")
    if everything:
        lines.append(f"{_label('DHCP Server')}{adapter.lease.get('serverid', '')}")
        lines.append(f"{_label('DNS Servers')}{' '.join(servers)}")
    return "".join(f"{line}\r\n" for line in lines)


_INBOUND = {  # policy: DoNotAllowExceptions, DefaultInboundAction
    "blockinbound": (0, 1),
    "blockinboundalways": (1, 1),
    "allowinbound": (0, 0),
}


def _advfirewall(shell: Shell, words: list[str], streams: Streams) -> int:
    """``netsh advfirewall set PROFILES state on|off`` or ``... firewallpolicy INBOUND,allowoutbound``."""
    which = words[0].removesuffix("s").removesuffix("profile") if words else ""
    current = "private" if firewall.category(shell.world.registry) == firewall.PRIVATE else "public"
    profiles = {"all": list(firewall.PROFILES), "current": [current]}.get(which, [which])
    inbound, _, outbound = (words[2] if len(words) == 3 else "").partition(",")
    values: dict[str, int] = {}
    if words[1:] in (["state", "on"], ["state", "off"]):
        values = {"EnableFirewall": int(words[2] == "on")}
    elif words[1:2] == ["firewallpolicy"] and inbound in _INBOUND and outbound == "allowoutbound":
        values = dict(zip(("DoNotAllowExceptions", "DefaultInboundAction"), _INBOUND[inbound], strict=True))
    if not values or profiles[0] not in firewall.PROFILES:
        streams.err(
            "The following command was not found (of advfirewall, the stand-in knows only 'set ...profile state' and "
            "'... firewallpolicy INBOUND,allowoutbound').\r\n"
        )
        return 1
    for profile in profiles:
        for name, value in values.items():
            firewall.set_profile(shell.world.registry, profile, name, value)
    streams.out("Ok.\r\n\r\n")
    return 0


def netsh(shell: Shell, rest: str, streams: Streams) -> int:
    """``netsh interface ipv4 show subinterfaces`` and some of ``netsh advfirewall set``."""
    words = [word.lower() for word in cmdline.split(rest)]
    if words[:2] == ["advfirewall", "set"]:
        return _advfirewall(shell, words[2:], streams)
    if words not in (["interface", "ipv4", "show", kind] for kind in ("subinterface", "subinterfaces")):
        streams.err(
            "The following command was not found (the stand-in knows only 'interface ipv4 show subinterfaces' and "
            "'advfirewall set').\r\n"
        )
        return 1
    streams.out("\r\n   MTU  MediaSenseState   Bytes In  Bytes Out  Interface\r\n")
    streams.out("------  ---------------  ---------  ---------  -------------\r\n")
    for number, adapter in enumerate(shell.world.adapters(), 1):
        name = "Ethernet" if number == 1 else f"Ethernet {number}"
        streams.out(f"{adapter.mtu:>6}                1          0          0  {name}\r\n")
    return 0


def curl(shell: Shell, rest: str, streams: Streams) -> int:
    """``curl``, which Windows contains: the real one, with paths of drives translated."""
    words = []
    for word in cmdline.split(rest):
        real = shell.path(word.lstrip("@")) if DRIVE.match(word.lstrip("@")) else None
        if word.upper() == "NUL":
            words.append("/dev/null")
        elif real is not None:
            words.append(("@" if word.startswith("@") else "") + str(real))
        else:
            words.append(word)
    try:
        result = run(["curl", *words], check=False, cwd=shell.path("."))
    except StandinError as error:
        streams.err(f"{error}\r\n")
        return 1
    streams.out(result.stdout)
    streams.err(result.stderr)
    return result.returncode


PROGRAMS: dict[str, Callable[[Shell, str, Streams], int]] = {
    "hostname": hostname,
    "ping": ping,
    "nslookup": nslookup,
    "ipconfig": ipconfig,
    "netsh": netsh,
    "curl": curl,
}
