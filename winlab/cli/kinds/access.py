"""Kinds of results about how nodes are reached, and what goes there."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.cli.kinds.base import Item


@dataclass(frozen=True, kw_only=True)
class Screen(Item):
    """Where a node's screen is reached by VNC."""

    address: str
    port: int
    password: str


@dataclass(frozen=True, kw_only=True)
class Desktop(Item):
    """Where a node's Remote Desktop is, and who may log in."""

    address: str
    port: int
    user: str
    password: str


@dataclass(frozen=True, kw_only=True)
class Page(Item):
    """A page that winlab serves until Ctrl-C. The URL works once."""

    url: str


@dataclass(frozen=True, kw_only=True)
class Port(Item):
    """A port of a node, and the one of this host's loopback that leads there."""

    node: str
    local: int
    remote: int


@dataclass(frozen=True, kw_only=True)
class Login(Item):
    """How to log in to a node. The key is the file of ssh's private key; without a password, it is the only way."""

    user: str
    address: str
    key: str
    password: str


@dataclass(frozen=True, kw_only=True)
class Transfer(Item):
    """What was copied to a target. ``skipped`` are links, devices and the like, which are not copied."""

    files: int
    bytes: int
    skipped: list[str]


@dataclass(frozen=True, kw_only=True)
class CommandResult(Item):
    """How a command ended on the node of this name, and what it printed.

    ``truncated``: a stream was longer than 1 MiB, and only its end is here. ``problem``: why the command could not run
    to its end there; ``exit_code`` is then winlab's.
    """

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    problem: str


@dataclass(frozen=True, kw_only=True)
class Variable(Item):
    """A variable of the environment with which programs use a lab."""

    value: str
