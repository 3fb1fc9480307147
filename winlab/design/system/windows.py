"""Windows Server."""

from __future__ import annotations

from winlab.design.system.model import Paths, System, Taint

SHIM = "containerd-shim-runhcs-v1"  # starts Windows' containers
PORTABLE = 20348  # from this build on, Windows runs the images of earlier builds, too, back to this one
HNS_MTU = 1450  # what HNS gives every pod of an l2bridge or overlay network (microsoft/SDN#517)

WINDOWS = System(
    name="windows",
    title="Windows",
    login="winrm",
    spare_logins=("ssh",),
    control_plane=False,
    own_layers=True,
    program_suffix=".exe",
    program_format="a Windows program (PE) for amd64",
    cd_scripts="windows/worker",
    cri_socket="npipe:////./pipe/containerd-containerd",
    cni_bin="C:/opt/cni/bin",
    cni_conf="C:/etc/cni/net.d",
    paths=Paths(
        form=r'C:(\\[^\\/:*?"<>|\x00-\x1f]*[^\\/:*?"<>|\x00-\x1f .])+',
        described="an absolute path of Windows, on drive C:",
        separator="\\",
        folds=True,
        own=(
            *(r"C:\winlab", r"C:\k", r"C:\etc", r"C:\opt\cni", r"C:\var", r"C:\Program Files\containerd"),
            r"C:\Users\Administrator\.crictl",
        ),
    ),
    registry=True,
    remote_desktop=True,
    systemd_cgroups=False,
    flags_file=False,  # the kubelet is a native service, whose command line has its flags
    taint=Taint("os", "NoSchedule", "windows"),
    hns=True,
    pod_mtu=HNS_MTU,
    store_disk=False,
    payload_drive=("sdd", "sata"),  # Windows has the driver; the answer file's CD is in it before
    packet_faults=False,
    hyperv=True,
    locks_account=True,  # after ten, for ten minutes: Microsoft, KB5020282 (media since October 2022)
    tells_crash=True,
    # with erms and fsrm an emulator copies byte by byte; QEMU 7.2 crashed once as a guest with svm ran a machine
    needless_cpu=("erms", "fsrm", "svm"),
    needs_cx16=True,
    usual_boot=1200.0,
    usual_payload=600.0,
    # an image of 300 MB may have to be pulled without any report of progress (facts: kubernetes-windows.md, D1)
    ready_silence=1200.0,
)


def runs_image(host: str, version: str) -> bool:
    """Whether Windows of the build *host* (``10.0.20348``) runs a container image with this ``os.version``.

    An image without a version runs on all. Source: github.com/containerd/platforms, platform_windows_compat.go.
    """
    builds = [text.split(".")[2:3] for text in (host, version)]
    if not version or not all(build and build[0].isdecimal() for build in builds):
        return True
    own, image = (int(build[0]) for build in builds)
    return PORTABLE <= image <= own if own >= PORTABLE else own == image
