"""k3s. Facts: k3s-io/k3s pkg/daemons/control/{server,tunnel}.go, pkg/agent/flannel/setup.go, late 2025 to 2026."""

from __future__ import annotations

import json

from winlab.design.clusters.model import AdminFile, Containers, Facts, Finding, Kind, Seen

TUNNEL, PODS = "--egress-selector-mode", "--cluster-cidr"


class K3s(Kind):
    """See :class:`winlab.design.clusters.model.Kind`."""

    name = "k3s"
    contexts = "default|k3d-.+"
    admin_files = (AdminFile("/etc/rancher/k3s/k3s.yaml", "root"),)
    containers: Containers | None = Containers("k3d.cluster", "k3d.role", "server", "k3d kubeconfig get {}")
    facts = Facts(
        authorization="Node,RBAC",
        restricts=True,
        two_cas=True,
        verifies=True,
        kubelets="tunnel",
        tokens=True,
        allocates=True,
        pods="10.42.0.0/16",
        services="10.43.0.0/16",
        port=6443,
        proxies=(),
    )
    needs = "egress-selector-mode disabled on every server; flannel with VNI 4096 and port 4789, or host-gw, or Calico"
    flannel_cure = (
        'On every server and agent write net-conf.json with {"Network": "10.42.0.0/16", "EnableIPv4": true, '
        '"EnableIPv6": false, "IPv6Network": "::/0", "Backend": {"Type": "vxlan", "VNI": 4096, '
        "\"Port\": 4789}}, add 'flannel-conf: FILE' to its config.yaml, allow UDP 4789, run 'ip link delete "
        "flannel.1', and restart it."
    )
    suffix = "+k3s"
    arguments = "k3s.io/node-args"  # the annotation with a server's flags, also those of its configuration file
    service = "k3s"

    def recognizes(self, seen: Seen) -> bool:
        """By its version."""
        return self.suffix in seen.version

    def pods(self, seen: Seen) -> str:
        """By its servers' flag."""
        return next(filter(None, (flag(words_of(one), PODS) for one in seen.annotation(self.arguments))), "")

    def findings(self, seen: Seen) -> list[Finding]:
        """Whether logs and exec can reach a kubelet that does not run its agent."""
        servers = [words for words in map(words_of, seen.annotation(self.arguments)) if words[:1] == ["server"]]
        if servers and all(flag(words, TUNNEL) == "disabled" for words in servers):
            return [Finding("logs and exec", "ok", f"The API server reaches kubelets directly ({TUNNEL} is disabled).")]
        seen_as = "is not disabled on every server" if servers else "can't be read"
        return [
            Finding(
                "logs and exec",
                "change",
                f"The API server reaches only kubelets that have {self.name}'s tunnel: {TUNNEL} {seen_as}. Pods run, "
                "but logs, exec and port-forward fail with 502 or 503.",
                f"On every server add 'egress-selector-mode: disabled' to /etc/rancher/{self.name}/config.yaml, then "
                f"'systemctl restart {self.service}'.",
            )
        ]


def words_of(annotation: str) -> list[str]:
    """The arguments in an annotation, a list in JSON; none if it is anything else."""
    try:
        found = json.loads(annotation)
    except (ValueError, RecursionError):
        return []
    return [str(word) for word in found] if isinstance(found, list) else []


def flag(words: list[str], name: str) -> str:
    """A flag's value, written as one word or as two; empty without it."""
    for index, word in enumerate(words):
        if word == name:
            return words[index + 1] if index + 1 < len(words) else ""
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


KIND = K3s()
