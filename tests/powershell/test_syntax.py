"""The engine's own parser takes every line of PowerShell in the project, and Windows PowerShell 5.1 would, too."""

from __future__ import annotations

import subprocess  # noqa: TID251 - runs the engine
from pathlib import Path

from powershell.conftest import SCRIPTS
from powershell.lines import fragments

from winlab.checks.windows_gates import KERNEL_SCRIPT

CHECK = Path(__file__).with_name("check.ps1")


def checked(parser: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    words = [parser, "-NoProfile", "-NonInteractive", "-File", CHECK, *paths]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


def test_every_line_is_windows_powershell(parser: Path, tmp_path: Path) -> None:
    for name, text in fragments().items():
        (tmp_path / f"{name}.ps1").write_text(text)
    said = checked(parser, SCRIPTS, tmp_path)
    assert said.returncode == 0, said.stdout
    files = len([*SCRIPTS.rglob("*.ps1"), *tmp_path.iterdir()])
    assert f"{files} files, 0 errors" in said.stdout


def test_lines_outside_of_scripts_are_found() -> None:
    """Those that there are now; a new one is taken by itself."""
    every = fragments()
    names = {name.rpartition("-")[0] for name in every}
    assert {"Autounattend.xml.j2", "seal-task", "updates-task", "winlab-checks-windows_gates.py"} <= names
    assert KERNEL_SCRIPT in every.values()
    assert "Restart-Service -Name kubelet -Force" in every.values()
    assert "Set-Date -Adjust ([TimeSpan]::FromMilliseconds(0))" in every.values()


def test_an_error_is_reported(parser: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ps1"
    bad.write_text("$a = $true ? 1 : 2\nif (1 -eq 1 { }\n")
    said = checked(parser, bad)
    assert said.returncode == 1
    assert "E001" in said.stdout


# each line, and what is found in it
WRONG = {
    "Get-FilesHash -LiteralPath 'x'": "E020 the command Get-FilesHash",
    "gci 'C:\\'": "E020 the command gci",
    "Get-Uptime": "E020 the command Get-Uptime",  # PowerShell 7 has it
    "\"$(Test-Json '{}')\"": "E020 the command Test-Json",
    "Get-ChildItem -Recursive": "E021 the parameter -Recursive of Get-ChildItem",
    "1 | ForEach-Object -Parallel { 1 }": "E021 the parameter -Parallel of ForEach-Object",  # 7 has it
    "Get-Service -ErrorAct Stop": "E021 the parameter -ErrorAct of Get-Service",
    "Write-Thing -Nam 'x'": "E021 the parameter -Nam of Write-Thing",
    "Get-Content 'x' -Encoding utf8NoBOM | Out-Null": "E022 -Encoding of Get-Content takes ASCII,",  # 7 has it
    "Get-Service -ErrorAction:Quietly": "E022 -ErrorAction of Get-Service takes Continue,",
}
RIGHT = """\
function Write-Thing([string]$Name) { Write-Warning $Name -WarningAction Continue }
Write-Thing -Name 'x'
get-childitem 'x' -recurse -ErrorAction SilentlyContinue | Where-Object { $_.Name } | Out-Null
ipconfig.exe -all
"""


def test_features_that_windows_powershell_lacks_are_found(parser: Path, tmp_path: Path) -> None:
    script = tmp_path / "wrong.ps1"
    script.write_text(RIGHT + "\n".join(WRONG))
    said = checked(parser, script)
    found = [line for line in said.stdout.splitlines() if ": E" in line]
    assert said.returncode == 1
    for number, (line, text) in zip(range(RIGHT.count("\n") + 1, 99), WRONG.items(), strict=False):
        (finding,) = [one for one in found if one.startswith(f"{script}:{number}:")]
        assert text in finding, line
        assert "add it to commands-5.1.json" in finding
    assert len(found) == len(WRONG)
