"""Linux."""

from __future__ import annotations

from winlab.design.system.model import Paths, System

LINUX = System(
    name="linux",
    title="Linux",
    login="ssh",
    spare_logins=(),
    control_plane=True,
    own_layers=False,
    program_suffix="",
    program_format="a Linux program (ELF) for amd64",
    cd_scripts="",
    cri_socket="unix:///run/containerd/containerd.sock",
    cni_bin="/opt/cni/bin",
    cni_conf="/etc/cni/net.d",
    paths=Paths(
        form=r"(/[^/\x00-\x1f]+)+",
        described="an absolute path of Linux",
        separator="/",
        folds=False,
        own=(
            *("/dev", "/proc", "/run", "/sys", "/tmp", "/etc/fstab", "/etc/hosts"),  # noqa: S108 - paths that are refused
            *(
                "/etc/cni",
                "/etc/containerd/config.toml",
                "/etc/containerd/proxy.env",
                "/etc/crictl.yaml",
                "/etc/kubernetes",
                "/opt/cni",
                "/usr/local/bin",
            ),
            *("/etc/systemd/system/containerd.service", "/etc/systemd/system/kubelet.service"),
            *("/etc/modules-load.d/winlab.conf", "/etc/sysctl.d/90-winlab.conf"),
            *("/etc/systemd/system/containerd.service.d/winlab-proxy.conf", "/etc/apt/apt.conf.d/90winlab-proxy"),
            *("/etc/systemd/networkd.conf.d/90-winlab.conf", "/etc/profile.d/winlab-proxy.sh"),
            *("/etc/systemd/system/winlab-routes.service", "/etc/systemd/system/winlab-masquerade.service"),
            "/etc/systemd/system/winlab-faults.service",
            *("/var/lib/cni", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/winlab"),
        ),
    ),
    registry=False,
    remote_desktop=False,
    systemd_cgroups=True,
    flags_file=True,
    taint=None,
    hns=False,
    pod_mtu=None,
    store_disk=True,
    payload_drive=("sdb", "scsi"),  # Debian's cloud kernel has no AHCI
    packet_faults=True,
    hyperv=False,
    locks_account=False,
    tells_crash=False,
    # each page fault and each copy from user space would cost an emulator more; with erms and fsrm it copies by bytes;
    # QEMU 7.2 crashed once as a guest with svm ran a machine of its own: "tcg_handle_interrupt: assertion failed"
    needless_cpu=("la57", "smap", "erms", "fsrm", "svm"),
    needs_cx16=False,
    usual_boot=40.0,
    usual_payload=900.0,
    ready_silence=300.0,
)
