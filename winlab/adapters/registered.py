"""A hypervisor as the site's OVN database records it. Members of the group can write there: nothing is believed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from winlab import documents
from winlab.adapters.remote import Remote
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.errors import UsageError, WinlabError

NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
# The whole URI: libvirt runs a program that its parameters name.
URI = re.compile(r"qemu\+ssh://([A-Za-z0-9_.-]+@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/system")
PREFIX = "winlab-hypervisor-"  # of its key in the external_ids of NB_Global; the name follows
LARGEST = 4096  # characters of a record
MOST = 64  # hypervisors


class Registered(BaseModel):
    """What is recorded of a hypervisor under its name.

    :param uri: of its libvirt, for every user of the site.
    :param facts: what its ``winlab host setup`` found there.
    :param checked: when it was added, or last added again.
    """

    model_config = ConfigDict(frozen=True)  # a later winlab may record more

    uri: str
    facts: MachineFacts
    checked: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @field_validator("uri")
    @classmethod
    def _names_a_host(cls, value: str) -> str:
        return check_uri(value)

    @field_validator("facts", mode="before")
    @classmethod
    def _are_known(cls, value: Any) -> Any:
        """Leave out the facts that only a later winlab knows."""
        if isinstance(value, dict):
            return {key: value[key] for key in value if key in MachineFacts.model_fields}
        return value

    @property
    def remote(self) -> Remote:
        """The host, for ssh."""
        found = Remote.of(self.uri)
        assert found is not None
        return found

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """A record as it was read.

        :raises WinlabError: it is not one that winlab writes.
        """
        try:
            if len(text) > LARGEST:
                raise ValueError(f"it has more than {LARGEST} characters")
            value: Any = documents.from_json(text)
            return cls.model_validate(value)
        except (UsageError, ValueError) as error:  # pydantic's is a ValueError
            why = _first(error) if isinstance(error, ValidationError) else str(error)
            raise WinlabError(
                f"What is recorded of the hypervisor '{name}' can't be used.",
                why=why,
                cure=f"Run 'winlab hypervisor remove {name} --force', then 'winlab hypervisor add' again.",
            ) from error


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def check_name(name: str) -> str:
    """Return *name* if it can be that of another hypervisor than the first.

    :raises UsageError: it can't.
    """
    if name == HYPERVISOR:
        raise UsageError(f"'{HYPERVISOR}' is the site's first hypervisor.", cure="Choose another name.")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' can't be the name of a hypervisor.",
            cure="Use 1 to 32 lower-case letters, digits and hyphens, beginning with a letter: 'hypervisor-2'.",
        )
    return name


def check_uri(uri: str) -> str:
    """Return *uri* if another hypervisor can be reached by it.

    :raises UsageError: it can't.
    """
    if not URI.fullmatch(uri):
        local = uri.partition(":")[0] in ("qemu", "qemu+unix", "test")
        raise UsageError(
            f"'{uri}' can't be the address of another hypervisor.",
            why="It is an address of this host, and each user's winlab connects from its own host."
            if local
            else "winlab reaches other hypervisors by ssh, and gives ssh its options itself.",
            cure="Give 'qemu+ssh://USER@HOST/system', with ':PORT' after the host if ssh needs one.",
        )
    Remote.of(uri)
    return uri
