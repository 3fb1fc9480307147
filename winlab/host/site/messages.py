"""What a host that joins and the site's first host send each other: one JSON text each way, over ssh."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from winlab import documents
from winlab.design.plan.facts import LARGEST_MTU, LEAST_MTU, SiteFacts
from winlab.errors import UsageError

LARGEST = 64 << 10  # bytes of a message; usual ones have less than 3,000

Chassis = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")]  # a certificate's name has 64
Pem = Annotated[
    str, Field(max_length=8192, pattern=r"^-----BEGIN [A-Z ]+-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]+-----\n$")
]
Mtu = Annotated[int, Field(ge=LEAST_MTU, le=LARGEST_MTU)]


class Given(BaseModel):
    """A certificate, and that of the authority which signed it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    certificate: Pem
    authority: Pem


class Candidate(BaseModel):
    """What a host needs to have OVN's databases, if the site has enough hosts: a request for another certificate.

    ``address`` is where the other hosts with databases reach it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: Pem
    address: IPv4Address


class Databases(BaseModel):
    """What a host gets that shall have OVN's databases.

    ``hosts`` are all such hosts by chassis, and ``clusters`` the ids of the clusters; empty while one host has them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    authority: Pem
    certificate: Pem
    hosts: dict[Chassis, IPv4Address] = Field(min_length=2, max_length=3)
    clusters: dict[str, str] = {}


class Request(BaseModel):
    """Of a host that joins.

    ``tunnel_mtu`` is the largest packet inside its tunnels, in bytes. ``authority`` is the fingerprint of the authority
    of the site that it has joined already, and ``external_address`` its address on its external bridge; empty: none.
    ``moves`` asks for a certificate for moves of running machines. ``databases`` is None from a winlab that knows no
    clusters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    chassis: Chassis
    request: Pem
    tunnel_address: IPv4Address
    tunnel_mtu: Mtu
    authority: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    moves: Pem | None = None
    databases: Candidate | None = None
    external_address: IPv4Address | None = None


class Answer(BaseModel):
    """Of the first host. ``southbound`` is where controllers connect to, and ``chassis`` the first host's own.

    ``external_address`` is for the host that joins, on its external bridge. ``gateway_mac`` is the MAC of the first
    host's external bridge.
    ``databases`` is for a host that shall have OVN's databases, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    chassis: Chassis
    certificate: Pem
    authority: Pem
    southbound: str = Field(pattern=r"^ssl:[0-9.]{7,15}:[0-9]{1,5}(,ssl:[0-9.]{7,15}:[0-9]{1,5}){0,2}$")
    databases: Databases | None = None
    tunnel_address: IPv4Address
    external_address: IPv4Address
    gateway_mac: str = Field(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$")
    facts: SiteFacts
    moves: Given | None = None


Message = TypeVar("Message", Request, Answer)


def read(kind: type[Message], text: str, sender: str) -> Message:
    """Read a message.

    :param sender: who sent it, for the error.
    :raises UsageError: it is too large, or malformed.
    """
    try:
        if len(text) > LARGEST:
            raise ValueError(f"It has more than {LARGEST} bytes.")
        return kind.model_validate(documents.from_json(text))
    except ValidationError as error:
        places = ("/".join(map(str, item["loc"])) + f": {item['msg']}" for item in error.errors(include_input=False))
        why = "; ".join(places)
    except ValueError as error:
        why = str(error)
    raise UsageError(
        f"The message from {sender} can't be used.", why=why, cure="Use the same version of winlab on both hosts."
    )
