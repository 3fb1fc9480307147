"""Pools: groups of equal machines. A lab has one, or several with different systems side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from winlab.design import system as systems
from winlab.design.spec import hosts, time_zones
from winlab.design.spec.fields import LINUX, SYSTEMS, WINDOWS, Model, of, option
from winlab.design.spec.sizes import Mib
from winlab.design.spec.systems import AnySystem, LinuxSystem, require, system

NAME = re.compile(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?")  # followed by "-60" a Windows name, of 15 characters at most
FIRST = "node"  # default name of the first pool
LINUX_POOL = "linux"  # name of the pool `linux_workers`
# Names of languages, pairs of a language and a layout, or a language and two GUIDs of an input method; source:
# https://learn.microsoft.com/windows-hardware/customize/desktop/unattend/microsoft-windows-international-core-inputlocale
_GUID = r"\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}"
_INPUT = rf"([a-z]{{2,3}}(-[A-Za-z0-9]+)+|[0-9A-Fa-f]{{4}}:([0-9A-Fa-f]{{8}}|{_GUID}{_GUID}))"
KEYBOARDS = rf"^{_INPUT}(;{_INPUT}){{0,9}}$"
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]+)+$"  # en-US, sr-Latn-RS
Edition = Literal["standard-core", "standard-desktop", "datacenter-core", "datacenter-desktop"]

# Places in the lab's network. A pool keeps its own, so that growing one moves no other.
LINUX_PLACES = range(51, 101)
FIRST_PLACES = range(101, 161)
FURTHER, STRIDE, ROOM = 161, 16, 15  # pools after the first: where they begin, how far apart, how many nodes each


class Pool(Model):
    """Workers with the same system and size, called NAME-1, NAME-2 and so on."""

    name: str = option(
        FIRST,
        "What the pool's nodes are called, followed by a number",
        example="win25",
        otherwise="node for the first pool; further pools need a name",
    )
    count: int = option(1, "How many nodes the pool has; at most 15 in pools after the first", ge=0, le=60, example=3)
    os: AnySystem = option("windows-2022", "Their system: an image from images/", flag="--os", example="windows-2025")
    cluster: bool = option(
        True,
        "Whether they join the cluster; false: machines that stand beside it (docs/machines.md)",
        otherwise="true, but false for a lab 0-N-1",
        example=False,
    )
    cpus: int = option(2, "Virtual CPUs of each node", ge=1, le=64, example=4)
    memory: Mib | None = option(
        None,
        "Memory of each node",
        ge=512,
        le=1 << 20,
        unit="MiB",
        otherwise="what the image's recipe suggests",
        example="4GiB",
    )
    disk: Mib | None = option(
        None,
        "Disk of each node; it takes only the space that is used",
        ge=4096,
        le=1 << 26,
        unit="MiB",
        otherwise="what the image's recipe suggests",
        example="64GiB",
    )
    hypervisor: str | None = hosts.pinned()
    apart: bool = hosts.apart()
    edition: Edition = option(
        "datacenter-core",
        "Edition of Windows Server, with or without a desktop",
        systems=WINDOWS,
        example="standard-desktop",
    )
    image: str | None = option(
        None,
        "The image on the medium by its name or number, as 'winlab iso inspect' shows them, instead of an edition",
        systems=WINDOWS,
        otherwise="the one of the edition",
        min_length=1,
        max_length=255,
        pattern=r"^[^\x00-\x1f]+$",
        example="Our Server 2022",
    )
    media: Path | None = option(
        None,
        "A Windows Server ISO of your own; it is never changed",
        flag="--iso",
        systems=WINDOWS,
        otherwise="the medium in the cache",
        example="isos/server-2025.iso",
    )
    drivers: Path | None = option(
        None, "The virtio-win ISO", systems=WINDOWS, otherwise="the ISO in the cache", example="virtio-win.iso"
    )
    openssh: Path | None = option(
        None,
        "OpenSSH-Win64.zip, for Windows before 2025 in networks without the internet",
        systems=WINDOWS,
        otherwise="Windows downloads OpenSSH itself",
        example="OpenSSH-Win64.zip",
    )
    firmware: Literal["uefi", "bios"] = option(
        "uefi", "Firmware: uefi installs on a GPT disk, bios on an MBR disk", systems=WINDOWS, example="bios"
    )
    bus: Literal["virtio-scsi", "virtio-blk", "sata"] | None = option(
        None,
        "How the disk is attached; sata comes with an e1000e NIC and needs no drivers",
        systems=WINDOWS,
        otherwise="virtio-scsi if drivers are available, otherwise sata",
        example="sata",
    )
    nic: Literal["virtio", "e1000e"] | None = option(
        None,
        "The network card; Windows has the driver of e1000e itself",
        systems=WINDOWS,
        otherwise="virtio, but e1000e if the disk is on sata",
        example="e1000e",
    )
    taint: Literal["os=windows:NoSchedule", "none"] = option(
        "os=windows:NoSchedule",
        "What keeps pods away that do not tolerate it; none: whatever does not ask for Linux may run there",
        systems=WINDOWS,
        example="none",
    )
    product_key: str | None = option(
        None,
        "Product key; evaluation media take none",
        secret=True,
        pattern=r"^[0-9A-Za-z]{5}(-[0-9A-Za-z]{5}){4}$",
        systems=WINDOWS,
        otherwise="none",
        example="AAAAA-BBBBB-CCCCC-DDDDD-EEEEE",
    )
    time_zone: str = option(
        "UTC",
        "Windows' name of the time zone (`tzutil /l`); append `_dstoff` to ignore daylight saving time",
        systems=WINDOWS,
        example="W. Europe Standard Time",
    )
    language: str = option(
        "en-US",
        "Language of Setup and Windows; it must be the medium's",
        pattern=LANGUAGE,
        systems=WINDOWS,
        example="de-DE",
    )
    locale: str = option(
        "en-US",
        "Formats of dates and numbers, as Windows names them",
        pattern=LANGUAGE,
        systems=WINDOWS,
        example="de-DE",
    )
    keyboard: str = option(
        "0409:00000409",
        "Keyboard layouts, as Windows names them, the first one first: 0407:00000407;0409:00000409, or de-DE",
        pattern=KEYBOARDS,
        systems=WINDOWS,
        example="0407:00000407",
    )
    scripts: tuple[Path, ...] = option(
        (),
        "PowerShell scripts of your own, run in this order once Windows answers",
        systems=WINDOWS,
        otherwise="none",
        example=["first.ps1", "second.ps1"],
    )
    files: Path | None = option(
        None,
        "A folder whose files are copied to the same places under `C:\\`",
        systems=WINDOWS,
        otherwise="none",
        example="c-drive",
    )
    extra_drivers: tuple[Path, ...] = option(
        (), "Folders with further drivers (`.inf`) to install", systems=WINDOWS, otherwise="none", example=["nic"]
    )
    template: Path | None = option(
        None,
        "A template of your own for Autounattend.xml (docs/windows.md)",
        systems=WINDOWS,
        otherwise="the one in unattend/",
        example="Autounattend.xml.j2",
    )
    golden: bool = option(
        True,
        "Clone a golden image, which is made once; false installs each node by itself",
        systems=WINDOWS,
        example=False,
    )
    updates: bool = option(False, "Install the updates of Windows into the golden image", systems=WINDOWS, example=True)

    @field_validator("name")
    @classmethod
    def _can_be_a_name(cls, value: str) -> str:
        if not NAME.fullmatch(value) or value == "controller":
            raise ValueError(
                f"nodes can't be called '{value}-1'; use 1 to 12 lower-case letters, digits and hyphens, "
                "beginning with a letter, such as win25, but not 'controller'"
            )
        if value in cls.model_fields:
            raise ValueError(f"a pool can't be called '{value}', because that is a field of pools")
        return value

    @field_validator("os")
    @classmethod
    def _known(cls, value: str) -> str:
        system(value)
        return value

    @field_validator("image", mode="before")
    @classmethod
    def _by_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("product_key")
    @classmethod
    def _in_capitals(cls, value: str | None) -> str | None:
        return value and value.upper()

    @field_validator("time_zone")
    @classmethod
    def _known_to_windows(cls, value: str) -> str:
        if problem := time_zones.problem(value):
            raise ValueError(problem)
        return value

    @field_validator("*")
    @classmethod
    def _its_system_has_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Checks the given fields; validators don't see defaults. ``os`` precedes all of them."""
        image = info.data.get("os")
        if value is None or not image or not info.field_name:
            return value
        runs, only = system(image).system.title, only_on(info.field_name)
        if only not in ("", runs):
            raise ValueError(f"only {only} workers have it, '{image}' is {runs}")
        return value


class LinuxWorkers(Model):
    """Linux workers in addition to the others: short for a pool called linux."""

    model_config = of(LINUX)

    count: int = option(0, "Number of Linux workers in addition to the others", ge=0, le=40, example=2)
    os: LinuxSystem = option("debian-13", "Their system: a Linux image from images/", example="debian-13")
    cpus: int = option(2, "Virtual CPUs of each node", ge=1, le=64, example=4)
    memory: Mib = option(2048, "Memory of each node", ge=512, le=1 << 20, unit="MiB", example="4GiB")
    disk: Mib = option(
        20 * 1024,
        "Disk of each node; it takes only the space that is used",
        ge=4096,
        le=1 << 26,
        unit="MiB",
        systems=LINUX,
        example="40GiB",
    )
    hypervisor: str | None = hosts.pinned()
    apart: bool = hosts.apart()

    @field_validator("os")
    @classmethod
    def _linux(cls, value: str) -> str:
        return require(systems.LINUX, value, "a Linux worker")

    def pool(self) -> Pool:
        """The pool that they are."""
        return Pool(name=LINUX_POOL, **dict(self))


def only_on(name: str) -> str:
    """The title of the one system whose pools have the field *name*; empty if all or none have it."""
    field = Pool.model_fields.get(name)
    extra = field.json_schema_extra if field is not None else None
    return str(extra.get(SYSTEMS, "")) if isinstance(extra, dict) else ""


def places(pools: Sequence[Pool]) -> dict[str, range]:
    """The places of each pool's nodes in the lab's network, counted from the network's own address."""
    given: dict[str, range] = {}
    others = [pool.name for pool in pools if pool.name != LINUX_POOL]
    for number, name in enumerate(others):
        begin = FURTHER + (number - 1) * STRIDE
        given[name] = FIRST_PLACES if number == 0 else range(begin, begin + ROOM)
    if len(others) < len(pools):
        given[LINUX_POOL] = LINUX_PLACES
    return given
