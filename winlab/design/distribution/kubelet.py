"""How the kubelet is started: a native service on Windows, a systemd unit on Linux. Pure."""

from __future__ import annotations

from winlab.design.catalog.versions import Versions
from winlab.design.distribution.model import Member

LOG = "C:/var/log/kubelet/kubelet.log"
RUNNER = r"C:\k\kube-log-runner.exe"  # k8s.io/component-base/logs/kube-log-runner: its flags precede the program
ROTATION = ("--log-file-size=50Mi", "--log-file-age=168h", "--flush-interval=5s")
ROTATION_SINCE = 34  # kubernetes/kubernetes#127667: older runners end at flags that they do not know

RESOLV_CONF = "/run/systemd/resolve/resolv.conf"  # not systemd-resolved's stub on 127.0.0.53: CoreDNS would ask itself

# As Kubernetes' own packages have it: kubernetes/release, cmd/krel/templates/latest
UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target containerd.service

[Service]
ExecStart={command}
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


def unit(arguments: tuple[str, ...] = ()) -> str:
    """/etc/systemd/system/kubelet.service.

    :param arguments: flags, unless a drop-in has them.
    """
    return UNIT.format(command=" ".join(("/usr/local/bin/kubelet", *arguments)))


def linux_arguments(node: Member) -> tuple[str, ...]:
    """The flags of a Linux kubelet that has no other file for them; everything else is in its configuration."""
    return (
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        "--config=/var/lib/kubelet/config.yaml",
        "--cert-dir=/var/lib/kubelet/pki",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        f"--container-runtime-endpoint={node.system.cri_socket}",
        *_registration(node),
    )


def windows_arguments(node: Member, *, bootstraps: bool = True) -> tuple[str, ...]:
    """The flags of kubelet.exe as a service, without the program's name.

    A native service reads no file with flags, so everything that Linux nodes have in such a file is here. The same
    flags work for all minor versions from 1.31 on. ``--pod-infra-container-image``, which older guides have, is fatal
    since 1.35 and not needed since 1.31 (containerd pins the sandbox's image).

    :param bootstraps: it begins with a bootstrap kubeconfig.
    """
    bootstrap = "--bootstrap-kubeconfig=C:/etc/kubernetes/bootstrap-kubelet.conf"
    return (
        "--windows-service",
        "--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS",  # otherwise busy pods starve it; as in Kubernetes' CI
        "--v=2",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        "--config=C:/var/lib/kubelet/config.yaml",
        "--cert-dir=C:/var/lib/kubelet/pki",
        *([bootstrap] * bootstraps),
        "--kubeconfig=C:/etc/kubernetes/kubelet.conf",
        f"--container-runtime-endpoint={node.system.cri_socket}",
        # the cluster's configuration is for Linux: these settings undo what Windows does not have
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--resolv-conf=",
        *_registration(node),
    )


def windows_command(versions: Versions, node: Member, *, bootstraps: bool = True) -> str:
    """The command line of the Windows service ``kubelet`` (its binPath)."""
    return service_command(versions, LOG, r"C:\k\kubelet.exe", windows_arguments(node, bootstraps=bootstraps))


def runner_flags(versions: Versions) -> tuple[str, ...]:
    """How kube-log-runner rotates the log: files of at most 50 MiB, old ones kept a week. Before 1.34 it can't."""
    return ROTATION if versions.minor >= ROTATION_SINCE else ()


def service_command(versions: Versions, log: str, program: str, arguments: tuple[str, ...]) -> str:
    """A service's command line, with the program's output in a log file.

    :raises ValueError: an argument would not arrive unchanged.
    """
    words = (RUNNER, f"--log-file={log}", *runner_flags(versions), program, *arguments)
    if bad := [word for word in words if any(char in word for char in ' \t"')]:
        raise ValueError(f"can't be in a service's command line: {bad}")
    return " ".join(words)


def _registration(node: Member) -> list[str]:
    """The flags with what the kubelet registers its node with."""
    words = [f"--register-with-taints={','.join(map(str, node.taints))}"] if node.taints else []
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    return [*words, *([f"--node-labels={labels}"] if labels else [])]
