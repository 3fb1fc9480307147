"""Failures in a worker are reported, and no secret with them."""

from __future__ import annotations

from powershell.cases import CNI, CONFIG, FEATURES, JOIN, TOKEN, done, refused
from powershell.doubles.machine import Machine


def ready_to_join(machine: Machine, kubeadm: str) -> None:
    state = machine.state()
    state["services"]["containerd"] = {"status": "Running", "start": "Automatic", "depends": []}
    state["services"]["kubelet"] = {"status": "Stopped", "start": "Automatic", "depends": ["containerd"]}
    machine.state(state)
    (machine.c / "k").mkdir()
    machine.program(machine.c / "k/kubeadm.exe", kubeadm)


def test_a_token_in_kubeadm_s_error_stays_in_the_node(machine: Machine) -> None:
    ready_to_join(machine, f'echo "error: token {TOKEN} has expired" >&2; exit 3')
    told = machine.run("join", JOIN)
    refused(told, "kubeadm.exe join ended with exit code 3: error: token <token> has expired")
    assert not any(TOKEN in line for line in (*told.out, *told.err))
    assert TOKEN not in (machine.c / "var/log/kubeadm/join.log").read_text()
    assert not (machine.c / "k/join.yaml").exists()


def test_a_kubeadm_that_falsely_reports_success(machine: Machine) -> None:
    ready_to_join(machine, "echo joined")
    refused(machine.run("join", JOIN), "the kubelet has no certificate")
    assert not machine.run("status").result["kubelet"]["joined"]


def test_leftovers_of_an_unfinished_join_are_removed(machine: Machine) -> None:
    ready_to_join(machine, "test ! -e $WINLAB_MACHINE/c/etc/kubernetes/bootstrap-kubelet.conf || exit 1; exit 7")
    left = machine.c / "etc/kubernetes/bootstrap-kubelet.conf"
    left.parent.mkdir(parents=True)
    left.write_text("left")
    refused(machine.run("join", JOIN), "exit code 7")
    assert not left.exists()


def test_a_program_whose_digest_is_wrong(machine: Machine) -> None:
    done(machine.run("features", FEATURES), restart=True)
    machine.restart()
    done(machine.run("features", FEATURES), restart=False)
    (machine.d / "programs/containerd.exe").write_text("other")
    refused(machine.run("containerd", CONFIG), "containerd.exe")


def test_containerd_that_never_answers(machine: Machine) -> None:
    done(machine.run("features", FEATURES), restart=True)
    machine.restart()
    done(machine.run("features", FEATURES), restart=False)
    log = machine.c / "var/log/containerd/containerd.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\nkäput\n", encoding="utf-8")
    digest = machine.program(machine.d / "programs/ctr.exe", "exit 1")
    listed = machine.payload()
    listed["programs"]["ctr.exe"]["sha256"] = digest
    machine.payload(listed)
    told = machine.run("containerd", CONFIG)
    refused(told, "does not answer after 90 tries")
    assert "käput" in "\n".join(told.err)


def test_a_network_that_cannot_be_made_says_why_in_its_log(machine: Machine) -> None:
    machine.haste = 1  # the script waits for the task, which is a process of its own: on a busy machine for long
    ready_to_join(machine, "")
    state = machine.state()
    state["features"]["Containers"] = "Installed"
    machine.state(state)
    joined = machine.c / "etc/kubernetes/kubelet.conf"
    joined.parent.mkdir(parents=True)
    joined.write_text("    server: https://10.77.0.10:6443\n")
    certificate = machine.c / "var/lib/kubelet/pki/kubelet-client-current.pem"
    certificate.parent.mkdir(parents=True)
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    network = {**CNI["network"], "node_address": "10.99.0.1"}  # type: ignore[dict-item]
    refused(machine.run("cni", {**CNI, "network": network}), "adapter with the address 10.99.0.1")
    assert "adapter with the address 10.99.0.1" in (machine.c / "winlab/network.log").read_text(errors="replace")
