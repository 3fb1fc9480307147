"""The proxy by which nodes reach the internet. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address, ip_network

from pydantic import field_validator

from winlab.design.spec.fields import Model, option
from winlab.design.spec.networks import THIS_NETWORK

# Letters that no reader of the address takes for something else: systemd, a shell, apt and Go read it
_WORD = r"(?:[A-Za-z0-9._~!*+=-]|%[0-9A-Fa-f]{2})+"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
ADDRESS = re.compile(rf"http://(?:{_WORD}(?::{_WORD})?@)?(?P<host>{_HOST}):(?P<port>[0-9]{{1,5}})/?")
NAME = re.compile(rf"(?:\*?\.)?{_HOST}(?::[0-9]{{1,5}})?")
LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # the name and password in an address
HIDDEN = "<secret>"


def without_login(address: str) -> str:
    """An address that can be shown: a placeholder takes the place of its name and password."""
    return LOGIN.sub(HIDDEN, address)


class Proxy(Model):
    """The proxy by which nodes reach the internet (docs/proxies.md); winlab's own is that of its environment."""

    http: str | None = option(
        None,
        "Address of the proxy for http",
        secret=True,
        otherwise="none: nodes reach the internet directly",
        example="http://proxy.example:3128",
    )
    https: str | None = option(
        None,
        "Address of the proxy for https; it begins with http://, too",
        secret=True,
        otherwise="that for http",
        example="http://proxy.example:3128",
    )
    no_proxy: tuple[str, ...] = option(
        (),
        "What nodes reach directly, besides the lab and its cluster: names with all below them, addresses, networks",
        otherwise="only the lab and its cluster",
        example=["corp.example", "10.0.0.0/8"],
    )

    @property
    def secure(self) -> str | None:
        """The proxy for https."""
        return self.https or self.http

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the addresses."""
        found = (ADDRESS.fullmatch(one) for one in (self.http, self.https) if one is not None)
        return tuple(dict.fromkeys(one["host"] for one in found if one is not None))

    def without_logins(self) -> Proxy:
        """The proxy as it can be shown."""
        given = {"http": self.http, "https": self.https}
        return self.model_copy(update={name: value and without_login(value) for name, value in given.items()})

    @field_validator("http", "https")
    @classmethod
    def _can_be_reached(cls, value: str | None) -> str | None:
        if value is None:
            return None
        found = ADDRESS.fullmatch(value)
        if found is None or not 0 < int(found["port"]) < 1 << 16:
            raise ValueError(
                "should be written as http://proxy.example:3128, with its port; other letters in a name or password "
                "than those of English and digits are written as %XX (@ is %40)"
            )
        if _is_this_machine(found["host"]):
            raise ValueError(f"{found['host']} would be the node itself; name the proxy as nodes reach it")
        return value.removesuffix("/")

    @field_validator("no_proxy")
    @classmethod
    def _can_be_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_exception, value))


def _is_this_machine(host: str) -> bool:
    try:
        address = IPv4Address(host)
    except ValueError:
        return host.lower() == "localhost"
    return address.is_loopback or address in THIS_NETWORK


def _exception(entry: str) -> str:
    """An entry of no_proxy, in the one form that all programs read.

    :raises ValueError: it is none.
    """
    try:
        return str(ip_network(entry, strict=False)) if "/" in entry else str(ip_address(entry))
    except ValueError:
        if "/" not in entry and NAME.fullmatch(entry):
            return entry
        raise ValueError(f"'{entry}' is not a name, an address or a network") from None
