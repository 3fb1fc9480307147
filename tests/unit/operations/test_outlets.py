"""A lab for other programs: ssh's configuration, /etc/hosts, variables, Ansible's inventory, ports, credentials."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import commands
import plans
import pytest
import results
import yaml
from sites import FakeSite

from winlab import Lab, Node, loopback, run
from winlab.adapters.remote import Remote
from winlab.adapters.vm.domains import Machine
from winlab.design.plan import tags
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.errors import NotFoundError, UsageError
from winlab.lab_folder import LabFolder
from winlab.operations import forward, group, look, outlets, reach, recorded
from winlab.operations.forward import Forward


@pytest.fixture(scope="module")
def made() -> Any:
    from winlab.design.plan import credentials

    return credentials.generate(plans.make(plans.KVM, "1-2-1"))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, made: Any) -> Plan:
    """A lab that runs, and that this account made."""
    plan = plans.make(plans.KVM, "1-2-1")
    machines = [
        Machine(f"winlab-lab.{node.name}", "running", tags.of(plan, node), hypervisor=HYPERVISOR) for node in plan.nodes
    ]
    monkeypatch.setattr(look, "find", lambda *_: machines)
    monkeypatch.setattr(recorded, "standing", lambda _: [plan])
    LabFolder("lab").keep_credentials(plan, made)
    return plan


def test_ssh_s_configuration_verifies_nodes(plan: Plan) -> None:
    blocks = outlets.ssh_config("lab", FakeSite()).split("\n\n")
    assert blocks[0] == "# winlab ssh-config --lab lab"
    lines = [line.strip() for line in blocks[1].splitlines()]
    node = plan.nodes[0]
    assert lines[:3] == [
        "Host controller-1.lab controller-1.lab.winlab.internal",
        f"HostName {node.floating}",
        "User winlab",
    ]
    assert {"StrictHostKeyChecking yes", "HostKeyAlias controller-1.lab.winlab.internal", "ForwardAgent no"} <= set(
        lines
    )
    assert f'IdentityFile "{LabFolder("lab").ssh_key}"' in lines
    assert len(blocks) == 1 + len(plan.nodes)
    assert "ProxyCommand" not in blocks[1]


def test_from_a_laptop_ssh_goes_through_the_first_host(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only hosts of the site reach nodes."""
    monkeypatch.setattr(FakeSite, "remote", lambda *_: Remote("first", "ann", 2222))
    (line,) = [line for line in outlets.ssh_config("lab", FakeSite()).splitlines() if "ProxyCommand" in line][:1]
    assert line.startswith("  ProxyCommand ssh -W %h:%p -oBatchMode=yes")
    assert line.endswith("-p 2222 -l ann -- first")


def test_lines_for_etc_hosts(plan: Plan) -> None:
    node = plan.node("node-1")
    assert f"{node.floating} node-1.lab.winlab.internal node-1.lab\n" in outlets.hosts("lab", FakeSite())


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("", "export WINLAB_LAB=lab\nexport KUBECONFIG={}\n"),
        ("--shell fish", "set -gx WINLAB_LAB 'lab'\nset -gx KUBECONFIG {}\n"),
    ],
)
def test_variables_are_quoted_for_the_shell(
    plan: Plan, words: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "it's \\ a"))
    monkeypatch.setattr(look, "require_lab", lambda *_: None)
    monkeypatch.setattr(Lab, "environment", lambda self: outlets.environment(self.name, FakeSite()))
    folder = LabFolder("lab")
    assert "KUBECONFIG" not in commands.ran("env", *words.split()).stdout
    folder.write(folder.kubeconfig, "x")
    path = str(folder.kubeconfig)
    fish = "'" + path.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert commands.ran("env", *words.split()).stdout == printed.format(fish if words else shlex.quote(path))


def test_the_inventory_has_groups_and_no_secret(plan: Plan, made: Any) -> None:
    text = outlets.inventory("lab", FakeSite())
    assert made.administrator_password not in text
    everything = yaml.safe_load(text)["all"]
    members = {name: sorted(group.get("hosts", {})) for name, group in everything["children"].items()}
    assert members == {
        "linux": ["controller-1"],
        "windows": ["node-1", "node-2"],
        "controllers": ["controller-1"],
        "workers": ["node-1", "node-2"],
        "pool_node": ["node-1", "node-2"],
    }
    assert (
        "HostKeyAlias=controller-1.lab.winlab.internal"
        in everything["hosts"]["controller-1"]["ansible_ssh_common_args"]
    )
    windows = everything["children"]["windows"]["vars"]
    assert windows["ansible_winrm_server_cert_validation"] == "validate"
    assert windows["ansible_winrm_ca_trust_path"] == str(LabFolder("lab").ca)
    assert everything["hosts"]["node-1"]["ansible_host"] == plan.node("node-1").floating  # which its certificate has


def test_nodes_of_a_copy_are_reached_by_ssh(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their certificates have the addresses of the lab that was copied."""
    monkeypatch.setattr(Plan, "certified", lambda _self, _node: "172.31.249.9")
    node = yaml.safe_load(outlets.inventory("lab", FakeSite()))["all"]["hosts"]["node-1"]
    assert (node["ansible_connection"], node["ansible_shell_type"]) == ("ssh", "cmd")


def test_credentials(plan: Plan, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logins = {one.node: one for one in outlets.logins("lab", FakeSite())}
    assert logins["node-1"].password == made.administrator_password
    assert logins["controller-1"].password == ""
    monkeypatch.setattr(Node, "login", lambda self: logins[self.name])
    assert commands.ran("credentials", "node-1", "--password").stdout == made.administrator_password + "\n"
    assert made.administrator_password in commands.ran("credentials", "node-1").stdout
    assert results.item(commands.ran("credentials", "node-1", "-o", "json").stdout)["user"] == "Administrator"
    refused = commands.ran("credentials", "controller-1", "--password")
    assert (refused.exit_code, refused.stdout) == (5, "")


@pytest.mark.parametrize(
    ("text", "local", "remote"), [("80", 80, 80), ("8080:80", 8080, 80), ("0:80", 0, 80), (":80", 0, 80)]
)
def test_ports(text: str, local: int, remote: int) -> None:
    assert Forward.parse(text) == Forward(local, remote)


@pytest.mark.parametrize("text", ["", "a", "0", "70000", "1:2:3", "127.0.0.1:80", "80:", "-1", "8080:70000"])
def test_what_is_not_a_port(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not \[LOCAL:\]REMOTE"):
        Forward.parse(text)


def test_ports_are_forwarded_on_the_loopback_only(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    @contextmanager
    def beside(words: list[Any]) -> Iterator[Any]:
        started.append([str(word) for word in words])
        yield lambda: None

    monkeypatch.setattr(run, "beside", beside)
    monkeypatch.setattr(forward, "free_port", lambda port: port or 40000)
    monkeypatch.setattr(loopback, "listens", lambda _port: True)
    with forward.forwarded("lab", "node-1", FakeSite(), [Forward(8080, 80), Forward(0, 3389)]) as (made, ended):
        assert made == [Forward(8080, 80), Forward(40000, 3389)]
        assert ended() is None
    (words,) = started
    assert [word for word in words if word.startswith("-L")] == [
        "-L127.0.0.1:8080:127.0.0.1:80",
        "-L127.0.0.1:40000:127.0.0.1:3389",
    ]
    assert words[-1] == f"Administrator@{plan.node('node-1').floating}"

    def taken(_port: int) -> int:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(forward, "free_port", taken)
    with pytest.raises(UsageError, match="8080"), forward.forwarded("lab", "node-1", FakeSite(), [Forward(8080, 80)]):
        pass


def test_a_command_at_a_terminal(plan: Plan) -> None:
    """ssh would take a line that begins with a dash for an option."""
    words = [str(word) for word in reach.ssh("lab", "node-1", FakeSite(), ["powershell.exe", "-NoLogo"], "-t")]
    assert "-t" in words[:-3]
    assert words[-3:-1] == ["--", f"Administrator@{plan.node('node-1').floating}"]
    assert words[-1].endswith("& powershell.exe -NoLogo")
    assert [str(word) for word in reach.ssh("lab", "node-1", FakeSite())][-1] == words[-2]


@pytest.mark.parametrize(
    ("pools", "systems", "names"),
    [
        ([], [], ["controller-1", "node-1", "node-2"]),
        (["node"], [], ["node-1", "node-2"]),
        ([], ["linux"], ["controller-1"]),
        (["node"], ["linux"], ["controller-1", "node-1", "node-2"]),
    ],
)
def test_nodes_are_selected(plan: Plan, pools: list[str], systems: list[Any], names: list[str]) -> None:
    assert [one.tag.node for one in group.select("lab", FakeSite(), pools, systems)] == names


def test_an_unknown_pool_is_named(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="no pool 'x'") as caught:
        group.select("lab", FakeSite(), ["x"])
    assert caught.value.cure == "It has: node."
    monkeypatch.setattr(recorded, "standing", lambda _: [])
    with pytest.raises(NotFoundError, match="does not know the pools"):
        group.select("lab", FakeSite(), ["node"])
