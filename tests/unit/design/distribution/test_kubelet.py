"""How the kubelet is started."""

from __future__ import annotations

import plans
import pytest
import rendered
import yaml

from winlab.design.catalog import versions
from winlab.design.distribution import kubelet
from winlab.design.distribution.kubeadm import config, files
from winlab.design.distribution.model import Member, worker_taints
from winlab.design.render import kube_proxy, nodes
from winlab.design.system import WINDOWS

NODE = Member("node-1", "10.77.0.101", WINDOWS, {"a": "b"}, worker_taints(WINDOWS))


def test_the_command_has_the_flags_of_kubeadm() -> None:
    flags = kubelet.windows_arguments(NODE)
    assert "--register-with-taints=os=windows:NoSchedule" in flags
    assert "--node-labels=a=b" in flags
    assert "--hostname-override=node-1" in flags
    assert "--node-ip=10.77.0.101" in flags
    assert "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd" in flags
    assert flags[0] == "--windows-service"


def test_flags_that_are_fatal_today_are_absent() -> None:
    flags = " ".join(kubelet.windows_arguments(NODE))
    for gone in ("pod-infra-container-image", "network-plugin", "--container-runtime=", "--log-file", "feature-gates"):
        assert gone not in flags


def test_a_plain_node_has_no_taints_and_labels() -> None:
    flags = " ".join(kubelet.windows_arguments(Member("node-1", "10.77.0.101", WINDOWS)))
    assert "taints" not in flags
    assert "labels" not in flags


@pytest.mark.parametrize(("taint", "there"), [("os=windows:NoSchedule", True), ("none", False)])
def test_a_spec_may_leave_the_taint_out(taint: str, there: bool) -> None:
    """The DaemonSets of some add-ons for Windows have no toleration."""
    plan = plans.make(plans.KVM, "1-1-1", f"workers.taint={taint}")
    member = nodes.member(plan, plan.node("node-1"))
    flags = " ".join(kubelet.windows_arguments(member))
    assert ("--register-with-taints=os=windows:NoSchedule" in flags) is there
    assert (f"{nodes.BARE}=true" in flags) is not there
    joined = yaml.safe_load(config.join_worker(nodes.cluster(plan), member, rendered.CREDENTIALS))
    assert bool(joined["nodeRegistration"]["taints"]) is there


def test_the_service_writes_a_log_file() -> None:
    words = kubelet.windows_command(versions.get(), NODE).split(" ")
    assert words[0] == r"C:\k\kube-log-runner.exe"
    assert words[1] == "--log-file=C:/var/log/kubelet/kubelet.log"
    assert words[words.index(r"C:\k\kubelet.exe") + 1 :] == list(kubelet.windows_arguments(NODE))


@pytest.mark.parametrize(("minor", "rotates"), [(31, False), (33, False), (34, True), (37, True)])
def test_the_log_runner_gets_only_flags_that_it_knows(minor: int, rotates: bool) -> None:
    """Before 1.34 it knows three, and ends at others: neither the kubelet nor kube-proxy would ever run."""
    chosen = versions.get(f"v1.{minor}.1", allow_untested=True)
    known = {"--log-file", "--also-stdout", "--redirect-stderr"}
    for command, program in (
        (kubelet.windows_command(chosen, NODE), r"C:\k\kubelet.exe"),
        (kube_proxy.command(chosen), r"C:\k\kube-proxy.exe"),
    ):
        words = command.split(" ")
        flags = {word.partition("=")[0] for word in words[1 : words.index(program)]}
        assert "--log-file" in flags
        assert flags - known == ({"--log-file-size", "--log-file-age", "--flush-interval"} if rotates else set())


@pytest.mark.parametrize("bad", ["two words", 'a"b', "a\tb"])
def test_arguments_that_would_be_lost_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="command line"):
        kubelet.windows_command(versions.get(), Member("node-1", "10.77.0.101", WINDOWS, {"label": bad}))


def test_the_units() -> None:
    assert "ExecStart=/usr/local/bin/kubelet\n" in kubelet.unit()
    assert '--kubeconfig=/etc/kubernetes/kubelet.conf"\n' in files.drop_in()
    assert "EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env" in files.drop_in()
    assert "\\" not in files.drop_in()
