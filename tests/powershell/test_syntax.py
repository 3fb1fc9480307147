"""The engine's own parser takes every line of PowerShell in the project, and Windows PowerShell 5.1 would, too."""

from __future__ import annotations

import html
import re
import subprocess  # noqa: TID251 - runs the engine
from pathlib import Path

from powershell.conftest import SCRIPTS

from winlab.checks.windows_gates import KERNEL_SCRIPT

CHECK = Path(__file__).with_name("check.ps1")


def fragments() -> dict[str, str]:
    """PowerShell that is not in a file of its own, by what it is part of."""
    template = (SCRIPTS / "Autounattend.xml.j2").read_text()
    commands = re.findall(r'powershell\.exe[^<]*? -Command "(.*?)"</', html.unescape(template))
    assert commands
    task = re.search(r"\$TaskScript = @'\n(.*?)\n'@", (SCRIPTS / "worker/updates.ps1").read_text(), re.DOTALL)
    assert task is not None
    return {
        **{f"answer-file-{number}": command for number, command in enumerate(commands)},
        "task-of-updates": task[1],
        "gates": KERNEL_SCRIPT,
    }


def checked(engine: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    words = [engine, "-NoProfile", "-NonInteractive", "-File", CHECK, *paths]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


def test_every_script_is_windows_powershell(engine: Path, tmp_path: Path) -> None:
    for name, text in fragments().items():
        (tmp_path / f"{name}.ps1").write_text(text)
    said = checked(engine, SCRIPTS, tmp_path)
    assert said.returncode == 0, said.stdout
    assert " 0 errors" in said.stdout


def test_an_error_is_told(engine: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ps1"
    bad.write_text("$a = $true ? 1 : 2\nif (1 -eq 1 { }\n")
    said = checked(engine, bad)
    assert said.returncode == 1
    assert "E001" in said.stdout
