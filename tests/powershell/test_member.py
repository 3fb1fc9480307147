"""member.ps1: a node of an external cluster, with credentials that winlab asked for."""

from __future__ import annotations

import pytest
from powershell.cases import MEMBER
from powershell.doubles.looks import act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import CERTIFICATE, JOINED, asking, installed, read, ready, service, write

PRIVATE = "D:PAI(A;;FA;;;SY)(A;;FA;;;BA)"
PEM = r"C:\var\lib\kubelet\pki\kubelet-client-current.pem"
CA, CONFIGURATION = r"C:\etc\kubernetes\pki\ca.crt", r"C:\var\lib\kubelet\config.yaml"


def test_the_kubelet_starts_with_what_it_is_given(node: Machine) -> None:
    asking(node)
    ran = act(node, "member", MEMBER, joined=True, changed=True)
    assert ran.changes == {
        JOINED: MEMBER["kubeconfig"],
        CA: MEMBER["client_ca"],
        CONFIGURATION: MEMBER["configuration"],
        PEM: CERTIFICATE,
        r"C:\etc\kubernetes\pki": None,
        r"C:\var\lib\kubelet": None,
        "service kubelet": "Running Automatic containerd",
    }
    assert ran.notes == [rf"acl {JOINED} {PRIVATE}", "service kubelet Running"]
    assert act(node, "member", MEMBER, joined=True, changed=False).changes == {}
    assert act(node, "status").told.result["kubelet"]["joined"]


def test_what_an_unfinished_join_left_is_removed_first(node: Machine) -> None:
    asking(node)
    write(node, r"C:\var\lib\kubelet\pki\kubelet-server-current.pem", "left")
    write(node, JOINED, "    server: https://192.0.2.99:6443\n")
    act(node, "member", MEMBER, joined=True, changed=True)
    assert not node.path(r"C:\var\lib\kubelet\pki\kubelet-server-current.pem").exists()
    assert read(node, JOINED) == MEMBER["kubeconfig"]


def test_a_member_keeps_its_own_certificate_and_takes_another_ca(node: Machine) -> None:
    asking(node)
    act(node, "member", MEMBER)
    others = {"client_ca": f"{MEMBER['client_ca']}more", "kubeconfig": f"{MEMBER['kubeconfig']}# another\n"}
    ran = act(node, "member", {**MEMBER, **others}, joined=True, changed=True)
    assert ran.changes == {CA: others["client_ca"]}
    assert ran.notes == ["service kubelet Stopped", "service kubelet Running"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"kubeconfig": "clusters: []"}, "settings.kubeconfig names no server."),
        ({"client_ca": "x"}, "settings.client_ca is no certificate."),
        ({"configuration": "kind: Other"}, "settings.configuration is no KubeletConfiguration."),
        ({"name": "node-2"}, "This is 'node-1', not 'node-2'."),
        (
            {"kubeconfig": "    server: https://192.0.2.99:6443"},
            "'node-1' is part of the cluster at '192.0.2.10:6443' already, not of '192.0.2.99:6443'.",
        ),
    ],
)
def test_what_is_refused(node: Machine, changes: dict[str, str], says: str) -> None:
    asking(node)
    act(node, "member", MEMBER)
    assert refuse(node, "member", {**MEMBER, **changes}, says).changes == {}


def test_what_comes_first(node: Machine) -> None:
    installed(node)
    refuse(node, "member", MEMBER, "The kubelet is no service yet: kubelet.ps1 comes first.")
    ready(node)
    service(node, "containerd", status="Stopped")
    refuse(node, "member", MEMBER, "containerd does not run: containerd.ps1 comes first.")
