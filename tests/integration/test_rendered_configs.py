"""The real programs of known-good minors read every configuration and flag that winlab renders for Linux.

The programs are built (and cached) by winlab's own source ``build``.
"""

from __future__ import annotations

from pathlib import Path

import minors
import plans
import pytest
import rendered
from cases import CASES

from winlab import run
from winlab.design.catalog import versions
from winlab.operations import render


def ask(case: rendered.Case, program: Path, folder: Path) -> list[str]:
    """Run the case; return the problems of the answer."""
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = [argument.replace("{folder}", str(folder)) for argument in case.arguments]
    answer = run.run([program, *arguments], check=False, timeout=120)
    return case.problems(folder, answer.returncode, answer.stdout, answer.stderr)


@pytest.mark.parametrize("minor", minors.chosen())
def test_the_real_programs_accept_the_rendered_files(minor: str, tmp_path: Path) -> None:
    chosen, programs = versions.get(minor), minors.programs(minor, "linux")
    problems = []
    for number, case in enumerate(rendered.cases(chosen, "linux")):
        folder = tmp_path / str(number)
        folder.mkdir()
        problems += ask(case, programs[case.program], folder)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("minor", minors.chosen())
def test_the_real_programs_refuse_wrong_files(minor: str, tmp_path: Path) -> None:
    chosen, programs = versions.get(minor), minors.programs(minor, "linux")
    problems = []
    for number, case in enumerate(rendered.refusals(chosen, "linux")):
        folder = tmp_path / str(number)
        folder.mkdir()
        problems += ask(case, programs[case.program], folder)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", CASES)
def test_kubeadm_accepts_the_files_of_plan_render(name: str, tmp_path: Path) -> None:
    """Every node's own configuration, with marks for what is secret."""
    facts, source, changes = CASES[name]
    plan = plans.make(facts, source, *changes)
    paths = render.write(plan, tmp_path)
    read = [path for path in paths if path.name == "kubeadm.yaml"]
    assert len(read) == len(plan.nodes)
    kubeadm = minors.programs(plan.cluster.versions.name, "linux", ("kubeadm",))["kubeadm"]
    for path in read:
        answer = run.run([kubeadm, "config", "validate", "--config", path], check=False, timeout=120)
        assert answer.returncode == 0, f"{path}: {answer.stderr}"
