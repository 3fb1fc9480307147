"""The real programs of known-good minors read every configuration and flag that winlab renders for Linux.

The programs are built (and cached) by winlab's own source ``build``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import minors
import plans
import pytest
import rendered
from cases import CASES

from winlab import run
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.design.render import folder
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource

Programs = dict[str, Path]
KUBERNETES = ("kubeadm", "kubelet", "kube-proxy", "kube-log-runner")


@pytest.fixture(scope="session")
def programs() -> Callable[[str], Programs]:
    """The programs of a minor, by their names; built when first asked for."""
    built: dict[str, Programs] = {}

    def get(minor: str) -> Programs:
        if minor not in built:
            chosen = versions.get(minor)
            wanted = [Program(name, chosen.kubernetes, "linux") for name in KUBERNETES]
            wanted.append(Program("containerd", chosen.containerd, "linux"))
            found = BuildSource(chosen.kubernetes).obtain_all(wanted, Quiet())
            built[minor] = {row.artifact.name: row.path for row in found if isinstance(row.artifact, Program)}
        return built[minor]

    return get


def ask(case: rendered.Case, program: Path, folder: Path) -> list[str]:
    """Run the case; what is wrong with the answer."""
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = [argument.replace("{folder}", str(folder)) for argument in case.arguments]
    answer = run.run([program, *arguments], check=False, timeout=120)
    return case.problems(folder, answer.returncode, answer.stdout, answer.stderr)


@pytest.mark.parametrize("minor", minors.chosen())
def test_the_real_programs_take_what_is_rendered(
    minor: str, programs: Callable[[str], Programs], tmp_path: Path
) -> None:
    chosen = versions.get(minor)
    problems = []
    for number, case in enumerate(rendered.cases(chosen, "linux")):
        folder = tmp_path / str(number)
        folder.mkdir()
        problems += ask(case, programs(minor)[case.program], folder)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("minor", minors.chosen())
def test_the_real_programs_refuse_what_is_wrong(
    minor: str, programs: Callable[[str], Programs], tmp_path: Path
) -> None:
    chosen = versions.get(minor)
    problems = []
    for number, case in enumerate(rendered.refusals(chosen, "linux")):
        folder = tmp_path / str(number)
        folder.mkdir()
        problems += ask(case, programs(minor)[case.program], folder)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", CASES)
def test_kubeadm_takes_what_plan_render_writes(name: str, programs: Callable[[str], Programs], tmp_path: Path) -> None:
    """Every node's own configuration, with marks for what is secret."""
    facts, source, changes = CASES[name]
    plan = plans.make(facts, source, *changes)
    paths = folder.write(plan, tmp_path)
    read = [path for path in paths if path.name == "kubeadm.yaml"]
    assert len(read) == len(plan.nodes)
    for path in read:
        kubeadm = programs(plan.cluster.versions.name)["kubeadm"]
        answer = run.run([kubeadm, "config", "validate", "--config", path], check=False, timeout=120)
        assert answer.returncode == 0, f"{path}: {answer.stderr}"
