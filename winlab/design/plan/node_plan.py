"""Planned machines: what all have, and what only Windows nodes have. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from winlab.design.plan.stock import Material, Template
from winlab.design.system import LINUX, WINDOWS, System


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class VolumePlan(_Model):
    """A storage volume. ``backing`` is the volume below it; ``capacity_mib`` is None if the content decides."""

    name: str
    role: Literal["disk", "seed", "answer", "media", "base"]
    format: Literal["qcow2", "raw"]
    backing: str | None = None
    capacity_mib: int | None = None


class WindowsPlan(_Model):
    """What only a Windows node has.

    ``medium``, ``drivers`` and ``openssh`` are SHA-256 digests: of the installation medium (empty if none is known),
    the virtio drivers and OpenSSH's archive. ``own_medium`` and ``own_drivers`` say whether the spec itself names them.
    ``golden`` is the key of the golden image that the node is cloned from. ``tainted``: whether the node keeps pods for
    other systems away.
    """

    computer_name: str
    image_name: str
    product_key: str | None
    time_zone: str
    language: str
    locale: str
    keyboard: str
    release: str
    medium: str = ""
    own_medium: bool = False
    drivers: str | None = None
    own_drivers: bool = False
    openssh: str | None = None
    scripts: tuple[Material, ...] = ()
    files: tuple[Material, ...] = ()
    extra_drivers: tuple[tuple[Material, ...], ...] = ()
    template: Template | None = None
    updates: bool = False
    golden: str | None = None
    tainted: bool = True

    def lasting(self) -> dict[str, Any]:
        """What identifies it while its lab exists.

        A medium or drivers that the spec names count by content, additions by name. What the cache decides does not
        count: which catalog medium, which published drivers, which golden image.
        """
        plain = self.model_dump(
            mode="json",
            exclude={"medium", "drivers", "openssh", "scripts", "files", "extra_drivers", "template", "tainted"},
        )
        return {
            **plain,
            **({} if self.tainted else {"tainted": False}),  # labs that were made before there was a choice have it
            "golden": self.golden is not None,
            "medium": self.medium if self.own_medium else None,
            "drivers": self.drivers if self.own_drivers else None,
            "openssh": self.openssh is not None,
            "scripts": [script.name for script in self.scripts],
            "files": [file.name for file in self.files],
            "extra_drivers": [[file.name for file in folder] for folder in self.extra_drivers],
            "template": self.template and self.template.name,
        }


class _Node(_Model):
    """What all machines have.

    ``port`` is the UUID of the port in OVN, ``address`` the inner address, and ``floating`` the one by which the host
    reaches the machine. ``pool`` is empty for controllers. A ``machine`` is beside the cluster.
    """

    name: str
    role: Literal["controller", "worker", "machine"]
    pool: str = ""
    image: str
    user: str
    domain: str
    uuid: str
    mac: str
    port: str
    address: str
    floating: str
    hypervisor: str
    cpus: int
    memory_mib: int
    disk_mib: int
    firmware: Literal["uefi", "bios"] = "uefi"
    bus: Literal["virtio-scsi", "virtio-blk", "sata"]
    nic: Literal["virtio", "e1000e"]
    volumes: tuple[VolumePlan, ...]

    @property
    def is_member(self) -> bool:
        """Whether it is a node of the cluster; otherwise it is beside the cluster."""
        return self.role != "machine"

    def has(self, role: str) -> bool:
        """Whether the node has a volume with this role."""
        return any(volume.role == role for volume in self.volumes)

    def volume(self, role: str) -> VolumePlan:
        """The node's volume with this role; ValueError if it has none."""
        for volume in self.volumes:
            if volume.role == role:
                return volume
        raise ValueError(f"{self.name} has no {role} volume")

    def _lasting(self) -> dict[str, Any]:
        # names of base volumes depend on the cache, and a clone's disk uses one; nodes' names include the pool's;
        # the domain is identified by its UUID, whatever its name
        volumes = [volume.model_dump(exclude={"backing"}) for volume in self.volumes if volume.role != "base"]
        return {**self.model_dump(mode="json", exclude={"volumes", "windows", "pool", "domain"}), "volumes": volumes}


class LinuxNode(_Node):
    """A machine that runs Linux."""

    os: Literal["linux"] = "linux"
    windows: None = None

    @property
    def system(self) -> System:
        """What the node runs."""
        return LINUX

    @property
    def is_clone(self) -> bool:
        """Whether its disk is based on a golden image; only Windows nodes' are."""
        return False

    @property
    def own_medium(self) -> bool:
        """Whether it is installed from a medium that the spec names; only Windows is installed."""
        return False

    @property
    def time_class(self) -> str:
        """The class of nodes that take the same time: the image."""
        return self.image

    @property
    def tainted(self) -> bool:
        """Whether it has its system's taint, if there is one."""
        return True

    def installed_with(self) -> dict[str, Any]:
        """What it was given once, when its system was installed: nothing."""
        return {}

    def lasting(self) -> dict[str, Any]:
        """What identifies the node while its lab exists."""
        return self._lasting()

    def without_secrets(self) -> LinuxNode:
        """The node without secrets."""
        return self


class WindowsNode(_Node):
    """A machine that runs Windows."""

    os: Literal["windows"] = "windows"
    windows: WindowsPlan

    @property
    def system(self) -> System:
        """What the node runs."""
        return WINDOWS

    @property
    def is_clone(self) -> bool:
        """Whether its disk is based on a golden image."""
        return self.windows.golden is not None

    @property
    def own_medium(self) -> bool:
        """Whether it is installed from a medium that the spec names."""
        return self.windows.own_medium

    @property
    def time_class(self) -> str:
        """The class of nodes that take the same time: the image, and whether Windows is installed or cloned."""
        return f"{self.image} {'cloned' if self.is_clone else 'installed'}"

    @property
    def tainted(self) -> bool:
        """Whether it has its system's taint."""
        return self.windows.tainted

    def installed_with(self) -> dict[str, Any]:
        """What it was given once, when Windows was installed, as far as it identifies the node."""
        return self.windows.lasting()

    def lasting(self) -> dict[str, Any]:
        """What identifies the node while its lab exists."""
        return {**self._lasting(), "windows": self.installed_with()}

    def without_secrets(self) -> WindowsNode:
        """The node with a placeholder for its product key."""
        if self.windows.product_key is None:
            return self
        return self.changed(product_key="<product key>")

    def changed(self, **fields: Any) -> WindowsNode:
        """The node with other fields of its ``windows``."""
        return self.model_copy(update={"windows": self.windows.model_copy(update=fields)})


NodePlan: TypeAlias = LinuxNode | WindowsNode


def windows_releases(nodes: Iterable[NodePlan]) -> list[str]:
    """The releases of Windows that the nodes run, sorted; none if all run Linux."""
    return sorted({node.windows.release for node in nodes if isinstance(node, WindowsNode)})
