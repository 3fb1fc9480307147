"""The scripts that winlab runs inside Windows nodes, by their text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from winlab import data
from winlab.design.catalog import versions
from winlab.design.distribution import kubelet
from winlab.design.render import kube_proxy

WORKER = data.folder("unattend") / "windows/worker"
STEPS = ("features", "containerd", "binaries", "configure", "kubelet", "join", "cni", "proxy")
OTHERS = ("status", "routes", "push", "load", "logs", "updates", "seal", "sealed")


def text(name: str) -> str:
    return (WORKER / f"{name}.ps1").read_text(encoding="ascii")


@pytest.mark.parametrize("path", sorted(WORKER.glob("*.ps1")), ids=lambda path: path.stem)
def test_scripts_are_ascii_and_fit_the_lines(path: Path) -> None:
    lines = path.read_bytes().decode("ascii").splitlines()
    assert max(map(len, lines)) <= 120
    assert len(lines) < 400


@pytest.mark.parametrize("name", [*STEPS, *OTHERS])
def test_every_script_keeps_the_contract(name: str) -> None:
    script = text(name)
    part = "images" if name in ("containerd", "load") else "common"
    assert f". (Join-Path $PSScriptRoot '{part}.ps1')" in script
    assert script.count("Invoke-Step {") == 1
    assert "Write-Host" not in script
    assert "Write-Error" not in script
    returned = re.findall(r"return @\{", script[script.index("Invoke-Step {") :])
    assert returned, "a step has a result"


def test_settings_are_read_outside_of_blocks() -> None:
    """In a block $input is the block's own, and a script that names it there alone is given no input at all."""
    for path in WORKER.glob("*.ps1"):
        lines = [line for line in path.read_text().splitlines() if "$input" in line and not line.startswith("#")]
        assert lines in ([], ["$settings = Read-Settings @($input)"]), path.name


@pytest.mark.parametrize(
    ("name", "refusals"),
    [
        ("containerd", ["features.ps1 comes first", "must be restarted first"]),
        ("binaries", ["containerd.ps1 comes first"]),
        ("kubelet", ["containerd.ps1 comes first", "binaries.ps1 comes first"]),
        ("join", ["kubelet.ps1 comes first", "containerd.ps1 comes first", "has joined the cluster at"]),
        ("cni", ["join.ps1 comes first"]),
        ("proxy", ["join.ps1 comes first", "binaries.ps1 comes first"]),
        ("routes", ["join.ps1 comes first"]),
        ("load", ["containerd.ps1 comes first"]),
    ],
)
def test_each_state_refuses_without_the_one_before(name: str, refusals: list[str]) -> None:
    step = text(name).split("Invoke-Step {")[1]
    for refusal in refusals:
        line = next(line for line in step.splitlines() if refusal in line)
        assert "throw" in line
    # before anything is touched
    first = re.search(r"Install-|Write-Text|Write-Secret|Set-|New-Folder|Stop-Running|Start-", step)
    assert first is None or step.index(refusals[0]) < first.start()


def test_nothing_is_sealed_while_a_restart_is_due() -> None:
    step = text("seal").split("Invoke-Step {")[1]
    asks = step.index("if (Test-AnyRestartPending) { return @{ restart = $true } }")
    first = re.search(r"Start-Sysprep|Remove-|Set-|Stop-Running|Invoke-Native|Write-Text", step)
    assert first is not None
    assert asks < first.start()
    assert "restart = $false" in step[asks:]


def test_the_token_leaves_no_trace() -> None:
    join = text("join")
    cleaned = join[join.index("finally {") :]
    assert "foreach ($secret in $file, $bootstrap)" in cleaned
    assert "[System.IO.File]::Delete($secret)" in cleaned
    assert "bootstrap-kubelet.conf" in join
    # cmdlets' arguments may be logged, methods' are not
    secret = text("common").split("function Write-Secret")[1].split("\n}")[0]
    assert not re.search(r"\b(Set|Add|Out)-(Content|File)\b|\$Text\s*\|", secret)
    assert "ConvertFrom-Json" not in text("common").split("function Read-Settings")[1].split("\n}")[0].replace(
        "# ConvertFrom-Json uses", ""
    )
    assert not re.search(r"\b(Set|Add|Out)-(Content|File)\b", join)
    assert "$PrivateFile = 'D:PAI(A;;FA;;;SY)(A;;FA;;;BA)'" in text("common")


def test_secrets_are_not_arguments() -> None:
    for name in STEPS:
        for call in re.findall(r"Invoke-Native .*", text(name)):
            assert "$configuration" not in call
            assert "kubeconfig" not in call


def test_differences_between_releases() -> None:
    script = text("features")
    for release, value in {"2019": "HNSControlFlag", "2022": "1114842764", "2025": "520997518"}.items():
        section = re.search(rf"^ {{8}}'{release}' \{{(.*?)\}}", script, re.MULTILINE | re.DOTALL)
        assert section is not None
        assert value in section[1]
    for port in ("10250", "30000-32767", "4789", "179"):
        assert f"'{port}'" in script


def test_the_host_names_the_files_that_the_scripts_write() -> None:
    folder = kube_proxy.CONFIG.rpartition("/")[0].replace("/", "\\")
    assert f"$folder = '{folder}'" in text("proxy")
    for path in (kube_proxy.CONFIG, kube_proxy.KUBECONFIG):
        assert f'"$folder\\{path.rpartition("/")[2]}"' in text("proxy")
    for path in (kube_proxy.LOG, kubelet.LOG):
        assert path.replace("/", "\\") in text("logs")


def test_commands_of_the_host_are_ones_that_the_scripts_take() -> None:
    pattern = re.search(r"\[regex\]::Matches\(\$Command, '(.*?\.exe)'\)", text("common"))
    assert pattern is not None
    found = re.findall(pattern[1], kube_proxy.command(versions.get()))
    assert found == [kubelet.RUNNER, r"C:\k\kube-proxy.exe"]


def test_scripts_that_change_a_worker_wait_for_each_other() -> None:
    """Before their work; and exactly those look on that say that they change nothing."""
    common = text("common")
    looks = re.search(r"return @\((.*?)\) -notcontains \$Script", common)
    assert looks is not None
    harmless = {path.stem for path in WORKER.glob("*.ps1") if "Changes nothing" in path.read_text()}
    assert set(re.findall(r"'(\w+)'", looks[1])) == harmless
    step = common.split("function Invoke-Step")[1]
    assert step.index("$mutex = Enter-Change") < step.index("& $StepBody")


def test_programs_that_scripts_run_exist() -> None:
    found = {
        name
        for path in WORKER.glob("*.ps1")
        for name in re.findall(r"\$PSScriptRoot '([\w-]+\.ps1)'", path.read_text())
    }
    assert found >= {"common.ps1", "images.ps1"}
    assert all((WORKER / name).exists() for name in found)
