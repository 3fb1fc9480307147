"""The document that gives scripts what Windows knows about itself: the types of its parts.

The fakes of Windows' cmdlets (``doubles/windows.ps1``) read and change such a document, in tests and in the stand-in.
node.py makes it, and applies its changes.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Service(TypedDict):
    """As Get-Service and Win32_Service show it."""

    status: str  # Running, Stopped
    start: str  # Automatic, Manual, Disabled
    depends: list[str]


class Task(TypedDict):
    """A scheduled task: its one action, its trigger, its account."""

    execute: str
    arguments: str
    trigger: str
    who: str
    settings: str


class NetAdapter(TypedDict):
    """As Get-NetAdapter and Get-NetIPAddress show it."""

    name: str
    ifIndex: int
    addresses: list[str]
    mac: str
    gateway: str
    dns: list[str]


class User(TypedDict):
    """A local account."""

    Name: str
    SID: str
    Lockout: bool


class Category(TypedDict):
    """A network's profile: Private or Public."""

    ifIndex: int
    category: str


class Nothing(TypedDict):
    """Only tests use these; the stand-in leaves them empty."""

    policies: list[dict[str, Any]]
    updates: list[str]
    events: list[dict[str, Any]]
    hotfixes: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    disks: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    dns: dict[str, str]
    reachable: list[str]
    provisioned: list[str]
    defender: bool
    timezone: str
    features_refused: bool
    cim: dict[str, int]
    hns_busy: int
    hns_errors: dict[str, Any]
    hns_gone: int
    task_states: list[str]
    dead_tasks: list[str]


class State(Nothing):
    """Everything that the fakes of Windows' cmdlets know. Rows of HNS are what HNS was given, and an ID."""

    services: dict[str, Service]
    features: dict[str, str]  # InstallState by name
    tasks: dict[str, Task]
    rules: dict[str, str]  # of the firewall: "DISPLAY NAME: Inbound Allow TCP 22 Any" by name
    closed: list[str]  # the firewall's profiles that ignore inbound rules
    unguarded: list[str]  # those that are off
    adapters: list[NetAdapter]
    profiles: list[Category]
    mtu: int
    networks: list[dict[str, Any]]
    endpoints: list[dict[str, Any]]
    users: list[User]
    logged_on: list[str]
    release: str
    language: str
    traps: list[str]  # releases.TRAPS
    booted: str  # UTC, as 2026-11-21T10:00:00Z
    processes: list[str]
    evaluation: int  # minutes
    volumes: list[dict[str, Any]]
    offline: int  # how many times Windows Update can't be reached
    apps: list[dict[str, Any]] | None  # None: Server Core has Appx's cmdlets, but they do not work


class Kept(TypedDict):
    """The data that is stored nowhere else: the file's content."""

    services: dict[str, Service]  # Windows' own
    features: dict[str, str]
    tasks: dict[str, Task]
    rules: dict[str, str]
    networks: list[dict[str, Any]]
    endpoints: list[dict[str, Any]]
    removed_apps: list[str]
