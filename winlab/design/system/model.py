"""What a system is, for everything that treats Linux and Windows nodes alike. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SystemName = Literal["linux", "windows"]


@dataclass(frozen=True)
class Taint:
    """A node's taint."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class Paths:
    """The paths of a system's files.

    :param form: a regular expression that matches an absolute path.
    :param described: the same, for messages.
    :param separator: what stands between folders.
    :param folds: whether capitals make no difference.
    :param own: what winlab, Kubernetes' programs and containerd write, and everything below it.
    """

    form: str
    described: str
    separator: str
    folds: bool
    own: tuple[str, ...]

    def key(self, path: str) -> str:
        """The same text for two paths of one file."""
        return path.lower() if self.folds else path


@dataclass(frozen=True)
class System:
    """The facts in which systems differ. Behaviour that differs is in a layer's linux.py and windows.py.

    :param title: its name in messages.
    :param login: how winlab logs in.
    :param spare_logins: the transports to try, in this order, if that one is unresponsive.
    :param control_plane: whether controllers can run it.
    :param own_layers: whether its container images contain layers of the system: one for each release, and none can be
        built.
    :param program_suffix: what ends the file name of a program.
    :param program_format: the format of a program, for display.
    :param cd_scripts: the folder in unattend/ of the scripts that its nodes run from the CD in the payload drive; empty
        if they get a program over their login instead.
    :param cri_socket: where kubelet and crictl find containerd.
    :param cni_bin: the folder of CNI plug-ins.
    :param cni_conf: the folder of CNI configuration.
    :param paths: of its files.
    :param registry: whether it has Windows' registry.
    :param remote_desktop: whether its screen can be used by RDP.
    :param systemd_cgroups: whether runc starts its containers, in systemd's cgroups.
    :param flags_file: whether the kubelet reads flags from a file that the distribution writes.
    :param taint: what keeps pods for other systems away from its workers.
    :param hns: whether Windows' Host Networking Service makes its pods' networks.
    :param pod_mtu: the MTU of pods, in bytes, where the system itself decides it.
    :param store_disk: whether its nodes can mount a disk with containerd's store that the host filled.
    :param payload_drive: target and bus of the drive for the payload CD.
    :param packet_faults: whether its kernel can lose and delay packets as a fault.
    :param hyperv: whether it uses Hyper-V's enlightenments, which QEMU has with KVM.
    :param locks_account: whether wrong passwords lock an account for a while, in which it refuses the right one, too.
    :param tells_crash: whether its kernel notifies the hypervisor when it crashes.
    :param needless_cpu: CPU features that it can do without, and that cost an emulator time or crash it.
    :param needs_cx16: whether it refuses to boot without the instruction cmpxchg16b.
    :param usual_boot: seconds from power-on to a login, on hardware.
    :param usual_payload: seconds to build its payload.
    :param ready_silence: seconds on hardware that a node may report the same before winlab gives up on it.
    """

    name: SystemName
    title: str
    login: Literal["ssh", "winrm"]
    spare_logins: tuple[Literal["ssh"], ...]
    control_plane: bool
    own_layers: bool
    program_suffix: str
    program_format: str
    cd_scripts: str
    cri_socket: str
    cni_bin: str
    cni_conf: str
    paths: Paths
    registry: bool
    remote_desktop: bool
    systemd_cgroups: bool
    flags_file: bool
    taint: Taint | None
    hns: bool
    pod_mtu: int | None
    store_disk: bool
    payload_drive: tuple[str, str]
    packet_faults: bool
    hyperv: bool
    locks_account: bool
    tells_crash: bool
    needless_cpu: tuple[str, ...]
    needs_cx16: bool
    usual_boot: float
    usual_payload: float
    ready_silence: float

    def program_file(self, program: str) -> str:
        """The name of a program's file: ``kubelet`` or ``kubelet.exe``."""
        return f"{program}{self.program_suffix}"
