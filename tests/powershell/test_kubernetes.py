"""binaries.ps1, kubelet.ps1 and join.ps1: Kubernetes' programs, the kubelet's service, and the cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest
from powershell.cases import COMMAND, JOIN, TOKEN
from powershell.doubles.looks import act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import (
    CERTIFICATE,
    JOINED,
    SERVICES,
    contained,
    featured,
    installed,
    joined,
    payload,
    proxied,
    read,
    ready,
    service,
    write,
)

ACL = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)"
ACLS = [rf"acl {folder} {ACL}" for folder in ("C:\\k", "C:\\opt", "C:\\etc")]
PROGRAMS = ("kube-log-runner.exe", "kube-proxy.exe", "kubeadm.exe", "kubectl.exe", "kubelet.exe")
PLUGINS = ("host-local.exe", "win-bridge.exe", "win-overlay.exe")
RECOVERY = [
    "run sc.exe failure kubelet reset= 86400 actions= restart/5000/restart/5000/restart/5000",
    "run sc.exe failureflag kubelet 1",
]
PRIVATE = "D:PAI(A;;FA;;;SY)(A;;FA;;;BA)"
PEM = r"C:\var\lib\kubelet\pki\kubelet-client-current.pem"


def test_binaries_installs_the_programs_of_the_cd(node: Machine) -> None:
    contained(node)
    payload(node, "other.exe", "#")
    ran = act(node, "binaries", changed=True)
    assert re.fullmatch("[0-9a-f]{64}", read(node, r"C:\winlab\payload.sha256"))
    digest = ran.changes.pop(r"C:\winlab\payload.sha256")
    assert ran.changes == {
        **{rf"C:\k\{name}": rf"= D:\programs\{name}" for name in PROGRAMS},
        **{rf"C:\opt\cni\bin\{name}": rf"= D:\cni\{name}" for name in PLUGINS},
        r"C:\opt\cni\bin": None,
        r"C:\etc\kubernetes\pki": "an empty folder",
        r"C:\etc\kubernetes\manifests": "an empty folder",
        r"C:\var\lib\kubelet": "an empty folder",
        r"C:\var\log\kubelet": "an empty folder",
        r"C:\var\log\kube-proxy": "an empty folder",
        r"C:\var\log\kubeadm": "an empty folder",
    }
    assert ran.notes == ACLS
    again = act(node, "binaries", changed=False)
    assert again.changes == {}
    assert act(node, "status").told.result["cd"] == digest


@pytest.mark.parametrize(
    ("name", "stopped"),
    [
        ("kubelet.exe", ["kubelet"]),
        ("kube-proxy.exe", ["kube-proxy"]),
        ("kube-log-runner.exe", ["kube-proxy", "kubelet"]),
        ("kubectl.exe", []),
        ("kubeadm.exe", []),
    ],
)
def test_users_of_a_new_program_are_stopped_and_started_again(node: Machine, name: str, stopped: list[str]) -> None:
    proxied(node)
    act(node, "binaries", changed=False)
    payload(node, name, "# another")
    ran = act(node, "binaries", changed=True)
    ran.changes.pop(r"C:\winlab\payload.sha256")
    assert ran.changes == {rf"C:\k\{name}": rf"= D:\programs\{name}"}
    begun = [f"service {one} Running" for one in reversed(stopped)]
    assert ran.notes == [*ACLS, *(f"service {one} Stopped" for one in stopped), *begun]


def test_a_new_plugin_stops_nothing(node: Machine) -> None:
    proxied(node)
    act(node, "binaries")
    payload(node, "win-bridge.exe", "# another", "cni")
    ran = act(node, "binaries", changed=True)
    assert ran.changes[r"C:\opt\cni\bin\win-bridge.exe"] == r"= D:\cni\win-bridge.exe"
    assert ran.notes == ACLS


def test_a_program_that_push_swapped_stays(node: Machine) -> None:
    proxied(node)
    act(node, "binaries")
    write(node, r"C:\k\kubelet.exe.winlab-original", "the original")
    payload(node, "kubelet.exe", "# another")
    ran = act(node, "binaries", changed=False)
    assert list(ran.changes) == [r"C:\winlab\payload.sha256"]


def test_files_in_the_way_of_a_copy_are_removed(node: Machine) -> None:
    """What an earlier run could not remove, as the program still ran."""
    proxied(node)
    act(node, "binaries")
    write(node, r"C:\k\kubelet.exe.winlab-new", "half a copy")
    write(node, r"C:\k\kubelet.exe.638.winlab-old", "an old one")
    payload(node, "kubelet.exe", "# another")
    ran = act(node, "binaries", changed=True)
    assert ran.changes[r"C:\k\kubelet.exe.winlab-new"] is None
    assert ran.changes[r"C:\k\kubelet.exe.638.winlab-old"] is None


@pytest.mark.parametrize("name", ["kubeadm.exe", "kubelet.exe", "kube-proxy.exe"])
def test_a_cd_that_lists_no_such_program(node: Machine, name: str) -> None:
    contained(node)
    listed = node.payload()
    del listed["programs"][name]
    node.payload(listed)
    assert refuse(node, "binaries", None, f"winlab's CD has no {name}.").changes == {}


def test_a_cd_without_a_listed_file(node: Machine) -> None:
    contained(node)
    (node.d / "programs/kubectl.exe").unlink()
    refuse(node, "binaries", None, "'kubectl.exe' is missing on winlab's CD.")


def test_a_file_that_differs_from_the_list(node: Machine) -> None:
    contained(node)
    node.program(node.d / "programs/kubectl.exe", "# another")
    refuse(node, "binaries", None, "'kubectl.exe' on winlab's CD is not what payload.json says: its SHA-256 differs.")
    assert not list((node.c / "k").glob("kubectl*"))
    (node.d / "payload.json").unlink()
    refuse(node, "binaries", None, "is not winlab's payload CD: it has no payload.json.")


def test_binaries_come_after_containerd(node: Machine) -> None:
    featured(node)
    assert refuse(node, "binaries", None, "containerd is not set up: containerd.ps1 comes first.").changes == {}


def test_the_kubelet_is_a_service_that_waits_for_its_join(node: Machine) -> None:
    installed(node)
    ran = act(node, "kubelet", COMMAND, changed=True)
    assert ran.changes == {
        rf"{SERVICES}\kubelet\ImagePath": COMMAND["command"],
        "service kubelet": "Stopped Automatic containerd",
    }
    assert ran.notes == [f"service kubelet new: {COMMAND['command']}", *RECOVERY]
    again = act(node, "kubelet", COMMAND, changed=False)
    assert again.changes == {}
    assert again.notes == RECOVERY


def test_another_command_of_a_kubelet_that_has_joined(node: Machine) -> None:
    joined(node)
    command = COMMAND["command"].replace("--v=1", "--v=4")
    ran = act(node, "kubelet", {"command": command}, changed=True)
    assert ran.changes == {rf"{SERVICES}\kubelet\ImagePath": command}
    changed = f"service kubelet changed: {command} Automatic containerd"
    assert ran.notes == ["service kubelet Stopped", changed, *RECOVERY, "service kubelet Running"]


def test_a_kubelet_whose_change_failed_in_its_middle_runs_the_new_command(node: Machine) -> None:
    joined(node)
    settings = {"command": COMMAND["command"].replace("--v=1", "--v=4")}
    refuse(node, "kubelet", settings, "sc.exe failure ended with exit code 77", fail=("sc.exe", 1))
    assert act(node, "kubelet", settings, changed=True).notes[-1] == "service kubelet Running"


def test_another_command_before_the_join_starts_nothing(node: Machine) -> None:
    ready(node)
    command = COMMAND["command"].replace("--v=1", "--V=1")
    ran = act(node, "kubelet", {"command": command}, changed=True)
    assert ran.changes == {rf"{SERVICES}\kubelet\ImagePath": command}


def test_a_kubelet_that_stopped_after_its_join_is_started(node: Machine) -> None:
    joined(node)
    service(node, "kubelet", COMMAND["command"], "Stopped", ("containerd",))
    ran = act(node, "kubelet", COMMAND, changed=True)
    assert ran.changes == {"service kubelet": "Running Automatic containerd"}
    assert act(node, "kubelet", COMMAND, changed=False).notes == RECOVERY


@pytest.mark.parametrize("gone", [JOINED, PEM])
@pytest.mark.parametrize("left", [None, "", "\0" * 64], ids=["gone", "empty", "zeros"])
def test_half_a_join_does_not_count(node: Machine, gone: str, left: str | None) -> None:
    """A power cut leaves files that were just written empty, or full of zeros."""
    joined(node)
    service(node, "kubelet", COMMAND["command"], "Stopped", ("containerd",))
    if left is None:
        node.path(gone).unlink()
    else:
        node.path(gone).write_text(left)
    assert act(node, "kubelet", COMMAND, changed=False).changes == {}


def test_prerequisites_of_the_kubelet(node: Machine) -> None:
    featured(node)
    refuse(node, "kubelet", COMMAND, "containerd is not set up: containerd.ps1 comes first.")
    contained(node)
    refuse(node, "kubelet", COMMAND, r"C:\k\kubelet.exe is missing: binaries.ps1 comes first.")
    write(node, r"C:\k\kubelet.exe")
    refuse(node, "kubelet", COMMAND, r"C:\k\kubeadm.exe is missing: binaries.ps1 comes first.")
    write(node, r"C:\k\kubeadm.exe")
    refuse(node, "kubelet", COMMAND, r"'C:\k\kube-log-runner.exe' is missing: binaries.ps1 comes first.")
    refuse(node, "kubelet", {"command": "kubelet"}, "settings.command names no program: 'kubelet'.")


def test_the_log_s_folder_is_made(node: Machine) -> None:
    installed(node)
    act(node, "kubelet", {"command": COMMAND["command"].replace("/log/kubelet/", "/log/other/")})
    assert (node.c / "var/log/other").is_dir()


def test_the_join(node: Machine) -> None:
    ready(node)
    ran = act(node, "join", JOIN, joined=True, changed=True)
    log = ran.changes.pop(r"C:\var\log\kubeadm\join.log")
    assert ran.changes == {
        JOINED: "    server: https://10.77.0.10:6443\n",
        PEM: CERTIFICATE,
        r"C:\var\lib\kubelet": None,
        r"C:\var\log\kubeadm": None,
        r"C:\winlab\joined.txt": "10.77.0.10:6443",
        "service kubelet": "Running Automatic containerd",
    }
    assert ran.notes == [rf"acl C:\k\join.yaml {PRIVATE}", r"run kubeadm.exe join --config C:\k\join.yaml --v=1"]
    lines = str(log).splitlines()
    assert re.fullmatch(r"winlab: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ join of 10\.77\.0\.10:6443", lines[0])
    assert ran.told.out[:-1] == lines[1:]
    # kubeadm warns on its other stream: where such a line falls among the rest differs from run to run
    warned = "[preflight] Running pre-flight checks"
    assert warned in lines[1:]
    assert [line for line in lines[1:] if line != warned] == [
        "token <token> is used",
        "This node has joined the cluster",
    ]


def test_kubeadm_reads_the_configuration_and_finds_the_kubelet_on_the_path(node: Machine) -> None:
    ready(node)
    body = 'cp "$WINLAB_MACHINE/c/k/join.yaml" "$WINLAB_MACHINE/given"; echo "$PATH" >"$WINLAB_MACHINE/path"; exit 1'
    node.program(node.c / "k/kubeadm.exe", body)
    refuse(node, "join", JOIN, "kubeadm.exe join ended with exit code 1: ")
    assert (node.folder / "given").read_text() == JOIN["configuration"]
    assert (node.folder / "path").read_text().startswith(r"C:\k;")


def test_a_later_join_adds_to_the_log(node: Machine) -> None:
    ready(node)
    write(node, r"C:\var\log\kubeadm\join.log", "before\n")
    act(node, "join", JOIN)
    assert read(node, r"C:\var\log\kubeadm\join.log").startswith("before\nwinlab: ")


@pytest.mark.parametrize("status", ["Running", "Stopped"])
def test_a_node_that_has_joined_is_left_alone(node: Machine, status: str) -> None:
    joined(node)
    service(node, "kubelet", COMMAND["command"], status, ("containerd",))
    ran = act(node, "join", JOIN, joined=True, changed=False)
    assert ran.notes == ([] if status == "Running" else ["service kubelet Running"])


@pytest.mark.parametrize("server", ["10.77.0.10:6443", "api.lab:6443"])
def test_a_cluster_is_known_by_the_kubeconfig_s_address_and_by_the_one_it_was_joined_by(
    node: Machine, server: str
) -> None:
    joined(node)
    write(node, r"C:\winlab\joined.txt", "api.lab:6443\n")
    configuration = JOIN["configuration"].replace("10.77.0.10:6443", server)
    act(node, "join", {**JOIN, "configuration": configuration}, joined=True, changed=False)
    elsewhere = {**JOIN, "configuration": JOIN["configuration"].replace("10.77.0.10", "10.77.0.99")}
    said = "'node-1' has joined the cluster at '10.77.0.10:6443, api.lab:6443' already, not '10.77.0.99:6443'."
    refuse(node, "join", elsewhere, said)


RECORD = r"C:\winlab\joined.txt"  # of the server, rewritten before kubeadm starts
LEFT = [
    r"C:\etc\kubernetes\bootstrap-kubelet.conf",
    JOINED,
    r"C:\etc\kubernetes\pki\ca.crt",
    r"C:\var\lib\kubelet\config.yaml",
    r"C:\var\lib\kubelet\kubeadm-flags.env",
    r"C:\var\lib\kubelet\instance-config.yaml",
    r"C:\var\lib\kubelet\pki\kubelet.crt",
    RECORD,
]


def test_leftovers_of_an_unfinished_join_are_removed_before_kubeadm_checks(node: Machine) -> None:
    ready(node)
    service(node, "kubelet", COMMAND["command"], "Running", ("containerd",))
    for path in LEFT:
        write(node, path, "left")
    node.program(
        node.c / "k/kubeadm.exe", 'cd "$WINLAB_MACHINE/c"; find etc/kubernetes var/lib/kubelet -type f >../seen; exit 1'
    )
    ran = refuse(node, "join", JOIN, "kubeadm.exe join ended")
    assert ran.notes[0] == "service kubelet Stopped"
    assert (node.folder / "seen").read_text() == ""
    assert [path for path in LEFT if node.path(path).exists()] == [RECORD]
    assert read(node, RECORD) == "10.77.0.10:6443"
    assert "winlab: removing what an unfinished join left" in ran.told.out


@pytest.mark.parametrize("path", LEFT)
def test_one_leftover_is_enough(node: Machine, path: str) -> None:
    ready(node)
    write(node, path, "left")
    node.program(node.c / "k/kubeadm.exe", "exit 1")
    refuse(node, "join", JOIN, "kubeadm.exe join ended")
    assert not node.path(path).exists() or (path, read(node, path)) == (RECORD, "10.77.0.10:6443")


def test_without_leftovers_nothing_is_stopped(node: Machine) -> None:
    ready(node)
    service(node, "kubelet", COMMAND["command"], "Running", ("containerd",))
    assert "service kubelet Stopped" not in act(node, "join", JOIN).notes


def test_no_secret_outlives_kubeadm(node: Machine) -> None:
    ready(node)
    body = 'touch "$WINLAB_MACHINE/c/etc/kubernetes/bootstrap-kubelet.conf"; exit 4'
    node.program(node.c / "k/kubeadm.exe", body)
    refuse(node, "join", JOIN, "kubeadm.exe join ended with exit code 4")
    assert not list(node.c.rglob("*bootstrap*"))
    assert not any(TOKEN in path.read_text() for path in node.c.rglob("*") if path.is_file())


def test_an_old_secret_is_not_overwritten_but_recreated(node: Machine) -> None:
    ready(node)
    write(node, r"C:\k\join.yaml", "x" * 1000)
    node.program(node.c / "k/kubeadm.exe", 'cp "$WINLAB_MACHINE/c/k/join.yaml" "$WINLAB_MACHINE/given"; exit 1')
    refuse(node, "join", JOIN, "kubeadm.exe join ended")
    assert (node.folder / "given").read_text() == JOIN["configuration"]


def test_the_last_lines_of_kubeadm_are_in_the_error(node: Machine) -> None:
    ready(node)
    node.program(node.c / "k/kubeadm.exe", "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; done; exit 9")
    ran = refuse(node, "join", JOIN, "ended with exit code 9: line 3")
    assert ran.told.err == [
        f"kubeadm.exe join ended with exit code 9: {'line 3'}",
        *(f"line {n}" for n in range(4, 11)),
    ]


def test_a_kubelet_that_does_not_run_after_the_join(node: Machine) -> None:
    ready(node)
    touched = f"etc/kubernetes/kubelet.conf {PEM[3:]}".replace("\\", "/")
    body = f'cd "$WINLAB_MACHINE/c"; mkdir -p var/lib/kubelet/pki; echo "server: BEGIN CERTIFICATE" | tee {touched}'
    node.program(node.c / "k/kubeadm.exe", body)
    refuse(node, "join", JOIN, "The node has joined, but the kubelet does not run.")
    assert read(node, r"C:\winlab\joined.txt") == "10.77.0.10:6443"


@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_spellings_of_the_server(node: Machine, quote: str) -> None:
    ready(node)
    configuration = JOIN["configuration"].replace('"10.77.0.10:6443"', f"{quote}10.77.0.10:6443{quote}")
    act(node, "join", {**JOIN, "configuration": configuration}, joined=True)
    assert read(node, r"C:\winlab\joined.txt") == "10.77.0.10:6443"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({**JOIN, "configuration": "kind: Other\n"}, "settings.configuration is no JoinConfiguration."),
        ({**JOIN, "configuration": "kind: JoinConfiguration\n"}, "settings.configuration names no apiServerEndpoint."),
        ({**JOIN, "name": "node-2"}, "This is 'node-1', not 'node-2'."),
    ],
)
def test_settings_that_the_join_refuses(node: Machine, settings: dict[str, Any], text: str) -> None:
    ready(node)
    assert refuse(node, "join", settings, text).changes == {}


def test_prerequisites_of_the_join(node: Machine) -> None:
    installed(node)
    refuse(node, "join", JOIN, "The kubelet is no service yet: kubelet.ps1 comes first.")
    ready(node)
    service(node, "containerd", status="Stopped")
    refuse(node, "join", JOIN, "containerd does not run: containerd.ps1 comes first.")


def test_a_secret_is_removed_even_if_kubeadm_can_t_be_started(node: Machine) -> None:
    ready(node)
    node.path(r"C:\k\kubeadm.exe").unlink()
    refuse(node, "join", JOIN, "kubeadm.exe")
    assert not node.path(r"C:\k\join.yaml").exists()
