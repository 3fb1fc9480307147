"""The proxy variables, read as Go reads them: kubectl and the builds of Go programs obey the same variables.

The rules are those of golang.org/x/net/http/httpproxy. ``HTTP_PROXY`` and ``HTTPS_PROXY`` belong to a scheme; the upper
case spelling comes first. What ``NO_PROXY`` lists is reached directly: names with all below them, names below alone
(``.example``, ``*.example``), addresses, networks, each with or without a port, or ``*``. An entry that can't be read
counts as nothing. This host itself is always reached directly. Go does not know ``ALL_PROXY``; winlab takes it, as curl
does, where the scheme has no variable of its own.

httpx, requests and curl read networks and ports otherwise, each in its own way.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Proxy:
    """The proxy that an address is asked through, and the variable that names it; ``url`` may hold a password."""

    variable: str
    url: str = field(repr=False)


def of(url: str) -> Proxy | None:
    """The proxy that the environment wants for *url*; None: it is asked directly.

    :param url: an http or https address that can be parsed.
    """
    parts = urlsplit(url)
    found = _first(f"{parts.scheme}_proxy", "all_proxy")
    if found is None or _is_direct(parts.hostname or "", parts.port or _PORTS.get(parts.scheme)):
        return None
    return Proxy(found[0], found[1] if "://" in found[1] else f"http://{found[1]}")


def is_this_host(host: str) -> bool:
    """Whether a URL's host is this machine: ``localhost`` or a loopback address. No proxy is asked for it."""
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost"


def _first(*names: str) -> tuple[str, str] | None:
    """The first of these variables that has a value, in either case."""
    for name in names:
        for spelling in (name.upper(), name):
            if value := os.environ.get(spelling, "").strip():
                return spelling, value
    return None


def _is_direct(host: str, port: int | None) -> bool:
    _, excepted = _first("no_proxy") or ("", "")
    name = _ascii(host)
    return is_this_host(name) or any(_matches(entry.strip(), name, port) for entry in excepted.split(","))


def _matches(entry: str, host: str, port: int | None) -> bool:
    """Whether *entry*, of the list of exceptions, means this host and port."""
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        return address is not None and _network_has(entry, address)
    name, wanted = _split(entry)
    if not name or (wanted and wanted != str(port)):
        return False
    if (own := _address(name)) is not None:
        return own == address
    if address is not None:
        return False
    name = _ascii(name.removeprefix("*"))
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith("." + name)


def _split(entry: str) -> tuple[str, str]:
    """Host and port of an entry; an IPv6 address has a port only in brackets."""
    if entry.startswith("["):
        host, closed, rest = entry[1:].partition("]")
        return (host, rest.removeprefix(":")) if closed else ("", "")
    host, _, port = entry.partition(":")
    return (entry, "") if ":" in port else (host, port)


def _network_has(text: str, address: _Address) -> bool:
    bits = text.partition("/")[2]
    try:
        return bits.isdecimal() and address in ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False


def _address(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _ascii(name: str) -> str:
    """A name as DNS has it."""
    if name.isascii():
        return name.lower()
    try:
        return ".".join(part.encode("idna").decode("ascii") if part else "" for part in name.lower().split("."))
    except UnicodeError:
        return name.lower()
