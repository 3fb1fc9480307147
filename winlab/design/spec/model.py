"""The spec: what is wanted. Pure, apart from reading the file it is told to read.

A spec comes from a shorthand (``1-1-1``: controllers-workers-hypervisors), a name in specs/, or a YAML file; ``--set``
changes any field. Whatever is wrong with it is said with the line and the cure before anything is touched.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from winlab import data
from winlab.design.addon import ByName
from winlab.design.catalog import recipes
from winlab.design.cni import ProfileName
from winlab.design.spec import time_zones
from winlab.design.spec.sizes import Mib
from winlab.errors import UsageError

SHORTHAND = re.compile(r"(\d+)-(\d+)-(\d+)")
LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]+)+$"  # en-US, sr-Latn-RS
# What a worker has only where it runs Windows
WINDOWS_ONLY = (
    *("media", "drivers", "openssh", "firmware", "bus", "product_key", "language"),
    *("scripts", "files", "extra_drivers", "template", "golden", "updates"),
)
Edition = Literal["standard-core", "standard-desktop", "datacenter-core", "datacenter-desktop"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Controllers(_Model):
    """The Linux nodes that run the control plane."""

    count: Literal[1, 3, 5] = 1
    os: str = Field("debian-13", description="an image from images/, a Linux one")
    cpus: int = Field(2, ge=1, le=64)
    memory: Mib = Field(3072, ge=512, le=1 << 20, description="MiB, or with a unit")
    disk: Mib = Field(20 * 1024, ge=4096, le=1 << 26, description="MiB, or with a unit")


class Workers(_Model):
    """The nodes that run the workload. ``memory`` and ``disk`` default to what the image's recipe suggests."""

    count: int = Field(1, ge=0, le=60)
    os: str = Field("windows-2022", description="an image from images/")
    cpus: int = Field(2, ge=1, le=64)
    memory: Mib | None = Field(None, ge=512, le=1 << 20)
    disk: Mib | None = Field(None, ge=4096, le=1 << 26)
    edition: Edition = "datacenter-core"
    media: Path | None = Field(None, description="a Windows Server ISO of your own, used untouched")
    drivers: Path | None = Field(None, description="the virtio-win ISO")
    openssh: Path | None = Field(
        None, description="OpenSSH-Win64.zip, for Windows before 2025 in networks without the internet"
    )
    firmware: Literal["uefi", "bios"] = Field("uefi", description="uefi installs on a GPT disk, bios on an MBR disk")
    bus: Literal["virtio-scsi", "virtio-blk", "sata"] | None = Field(
        None, description="default: virtio-scsi where drivers are at hand, else sata (with an e1000e NIC)"
    )
    product_key: str | None = Field(None, pattern=r"^[0-9A-Z]{5}(-[0-9A-Z]{5}){4}$")
    time_zone: str = "UTC"
    language: str = Field("en-US", pattern=LANGUAGE, description="of Setup and Windows: the medium's")
    locale: str = Field("en-US", pattern=LANGUAGE)
    keyboard: str = Field("0409:00000409", pattern=r"^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{8}$")
    scripts: tuple[Path, ...] = Field((), description="PowerShell scripts of your own, run once Windows answers")
    files: Path | None = Field(None, description="a folder whose files come to the same places under C:")
    extra_drivers: tuple[Path, ...] = Field((), description="folders with further drivers (.inf) to install")
    template: Path | None = Field(None, description="a template of your own for Autounattend.xml")
    golden: bool = Field(True, description="clone a golden image, made once; false installs each node by itself")
    updates: bool = Field(False, description="install Windows' updates into the golden image")

    @field_validator("time_zone")
    @classmethod
    def _known_to_windows(cls, value: str) -> str:
        if problem := time_zones.problem(value):
            raise ValueError(problem)
        return value


class LinuxWorkers(_Model):
    """Linux workers beside the others, for labs with both; named ``linux-1`` and so on."""

    count: int = Field(0, ge=0, le=40)
    os: str = Field("debian-13", description="an image from images/, a Linux one")
    cpus: int = Field(2, ge=1, le=64)
    memory: Mib = Field(2048, ge=512, le=1 << 20, description="MiB, or with a unit")
    disk: Mib = Field(20 * 1024, ge=4096, le=1 << 26, description="MiB, or with a unit")


class Kubernetes(_Model):
    """Which Kubernetes, from the combinations that are known to be good (images/kubernetes/known-good.yaml)."""

    version: str | None = Field(None, description="1.36 or v1.36.3; default: the combination marked as default")
    source: Path | None = Field(None, description="a checkout of Kubernetes to build from: your own patches")
    untested: bool = Field(False, description="allow a version outside the known-good combinations")
    pod_cidr: str = "10.244.0.0/16"
    service_cidr: str = "10.96.0.0/16"

    @field_validator("version", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, float) else value  # YAML reads 1.36 as a number

    @field_validator("pod_cidr", "service_cidr")
    @classmethod
    def _private(cls, value: str) -> str:
        network = ipaddress.IPv4Network(value)  # ValueError says what is wrong
        if not network.is_private or not 12 <= network.prefixlen <= 22:
            raise ValueError(f"{value} should be a private IPv4 network between /12 and /22, such as 10.244.0.0/16")
        return value


class Network(_Model):
    """The lab's inner network. Labs may use the same one; each has its own switch and router."""

    cidr: str = "10.77.0.0/24"
    dns: tuple[str, ...] = Field((), description="resolvers for the guests; default: the host's own")
    mtu: int = Field(1500, ge=1280, le=9000)
    cni: ProfileName | None = Field(
        None, description="default: l3 in a rehearsal and where all nodes run Linux, else calico-vxlan"
    )
    floating_block: int | None = Field(
        None, ge=1, description="which 16 of the external addresses to take; default: chosen by the lab's name"
    )

    @field_validator("cidr")
    @classmethod
    def _private(cls, value: str) -> str:
        network = ipaddress.IPv4Network(value)  # ValueError says what is wrong
        if not network.is_private or not 16 <= network.prefixlen <= 25:
            raise ValueError(f"{value} should be a private IPv4 network between /16 and /25, such as 10.77.0.0/24")
        return value

    @field_validator("dns")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            ipaddress.IPv4Address(address)
        return value


class Spec(_Model):
    """A whole lab."""

    controllers: Controllers = Controllers()
    workers: Workers = Workers()
    linux_workers: LinuxWorkers = LinuxWorkers()
    hypervisors: Literal[1] = 1
    network: Network = Network()
    kubernetes: Kubernetes = Kubernetes()
    addons: ByName = Field({}, description="by name, the settings of each add-on that the lab is to have")

    @model_validator(mode="after")
    def _known_systems(self) -> Spec:
        known = {name: recipes.get(name) for name in recipes.systems()}
        chosen = {
            "controllers.os": self.controllers.os,
            "workers.os": self.workers.os,
            "linux_workers.os": self.linux_workers.os,
        }
        for where, name in chosen.items():
            if name not in known:
                raise ValueError(f"{where}: there is no image '{name}'; there are {', '.join(sorted(known))}")
        for where, kind in (("controllers.os", "a controller"), ("linux_workers.os", "a Linux worker")):
            if known[chosen[where]].os != "linux":
                raise ValueError(f"{where}: {kind} runs Linux, '{chosen[where]}' is Windows")
        if known[self.workers.os].os == "linux":
            for name in WINDOWS_ONLY:
                if name in self.workers.model_fields_set and getattr(self.workers, name) is not None:
                    raise ValueError(f"workers.{name}: only Windows workers have it, '{self.workers.os}' is Linux")
        size = ipaddress.IPv4Network(self.network.cidr).num_addresses
        if self.workers.count + 101 >= size - 1:
            raise ValueError(
                f"network.cidr: {self.network.cidr} is too small for {self.workers.count} workers; "
                "they take addresses from the 101st on"
            )
        return self


def names() -> list[str]:
    """The names of the specs in specs/, sorted."""
    return sorted(path.stem for path in data.folder("specs").glob("*.yaml"))


def load(source: str, changes: Iterable[str] = ()) -> Spec:
    """The spec that *source* means, with the ``path=value`` *changes* of ``--set`` applied.

    :raises UsageError: nothing is touched; the message says what, in which line, and the cure.
    """
    raw, nodes, where = _read(source)
    given: dict[str, str] = {}
    for change in changes:
        path, sign, value = change.partition("=")
        if not sign or not re.fullmatch(r"[a-z_]+(\.[a-z0-9_-]+)*", path):
            raise UsageError(
                f"'--set {change}' can't be understood.", cure="Write it as --set path=value: --set workers.cpus=4."
            )
        try:
            _put(raw, path.split("."), yaml.safe_load(value), change)
        except yaml.YAMLError as error:
            raise UsageError(f"The value in '--set {change}' is not YAML.", why=str(error)) from error
        given[path] = change
    try:
        return _resolved(Spec.model_validate(raw), Path(source).parent if nodes is not None else Path())
    except ValidationError as error:
        raise _explain(error, where, nodes, given) from error


def _resolved(made: Spec, folder: Path) -> Spec:
    """Paths made absolute: a spec's own are relative to its file."""

    def absolute(path: Path) -> Path:
        return (folder / path.expanduser()).resolve()

    paths: dict[str, Path | tuple[Path, ...]] = {
        name: absolute(value)
        for name in ("media", "drivers", "openssh", "files", "template")
        if (value := getattr(made.workers, name)) is not None
    }
    for name in ("scripts", "extra_drivers"):
        paths[name] = tuple(map(absolute, getattr(made.workers, name)))
    source = made.kubernetes.source
    tree = {"source": absolute(source)} if source else {}
    return made.model_copy(
        update={
            "workers": made.workers.model_copy(update=paths),
            "kubernetes": made.kubernetes.model_copy(update=tree),
        }
    )


def _read(source: str) -> tuple[dict[str, Any], yaml.Node | None, str]:
    """The raw spec, its YAML nodes (for line numbers), and how to call it in messages."""
    if source.endswith((".yaml", ".yml")) or "/" in source:
        path = Path(source)
    elif source in names():
        path = data.folder("specs") / f"{source}.yaml"
    elif match := SHORTHAND.fullmatch(source):
        controllers, workers, hypervisors = (int(digits) for digits in match.groups())
        raw = {
            "controllers": {"count": controllers},
            "workers": {"count": workers},
            "hypervisors": hypervisors,
        }
        return raw, None, f"the spec '{source}'"
    else:
        raise UsageError(
            f"There is no spec '{source}'.",
            cure="Give controllers-workers-hypervisors, such as 1-1-1, the path of a YAML file, or one of: "
            + ", ".join(names()),
        )
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")  # a device or a pipe would be waited for
        text = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(text)
        nodes = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL byte
        raise UsageError(f"The spec '{path}' can't be read.", why=str(error)) from error
    except yaml.YAMLError as error:
        raise UsageError(f"The spec '{path}' is not YAML.", why=str(error)) from error
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise UsageError(f"The spec '{path}' is not a mapping.", cure="Begin with 'controllers:' and 'workers:'.")
    return raw, nodes, f"'{path}'"


def _put(raw: dict[str, Any], path: Sequence[str], value: Any, change: str) -> None:
    for key in path[:-1]:
        if raw.get(key) is None:
            raw[key] = {}
        raw = raw[key]
        if not isinstance(raw, dict):
            raise UsageError(f"'--set {change}': '{key}' has no fields.")
    raw[path[-1]] = value


def _explain(error: ValidationError, where: str, nodes: yaml.Node | None, given: dict[str, str]) -> UsageError:
    problems = []
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if not path and ": " in message and re.fullmatch(r"[a-z_.]+", message.split(": ")[0]):
            path, message = message.split(": ", 1)
        if item["type"] == "extra_forbidden":
            message = f"there is no such field; there are {', '.join(_siblings(path))}"
        place = where
        if path in given:
            place = f"--set {given[path]}"
        elif nodes is not None and (line := _line(nodes, path.split("."))) is not None:
            place = f"{where}, line {line}"
        problems.append(f"{place}: {path}: {message}" if path else f"{place}: {message}")
    return UsageError(
        f"The spec is not valid ({len(problems)} problem{'s' if len(problems) > 1 else ''}).",
        why="\n       ".join(problems),
        cure="docs/specs.md lists every field; 'winlab plan' checks a spec without touching anything.",
    )


def _siblings(path: str) -> list[str]:
    model: type[BaseModel] = Spec
    for key in path.split(".")[:-1]:
        field = model.model_fields.get(key)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return sorted(model.model_fields)


def _line(node: yaml.Node, path: Sequence[str]) -> int | None:
    """The line (from 1) of the key that *path* names, or of its nearest parent that is there."""
    line: int | None = None
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            break
        for name, value in node.value:
            if name.value == key:
                line, node = name.start_mark.line + 1, value
                break
        else:
            break
    return line
