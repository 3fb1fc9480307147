"""A lab without a cluster: machines that answer, and commands that say what it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import results
from harness import Traces, Winlab, added, traces, worked

LAB = "it-alone"
ON = ("--lab", LAB)
POOLS = (
    "workers=[{name: agent, os: debian-13, memory: 1GiB, cpus: 1, cluster: false}, "
    "{name: build, os: windows-rehearsal, cluster: false}]"
)
CREATE = ("create", "--spec", "0-1-1", "--set", POOLS, *ON)
NONE = f"The lab '{LAB}' has no cluster"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before(host: None, scripted: Winlab) -> Traces:
    scripted.ok("destroy", *ON, "--anyone")
    return traces()


@pytest.fixture(scope="module")
def lab(before: Traces, scripted: Winlab) -> Iterator[Winlab]:
    said = scripted.ok(*CREATE)
    assert "all nodes answer" in said
    yield scripted
    scripted("destroy", *ON)


def rows(lab: Winlab) -> dict[str, Any]:
    """The output of status, also if its exit code says that nothing answers."""
    found = results.items(lab("status", *ON, "--output", "json").stdout)
    return {row["name"]: row for row in found}


def test_status_shows_machines(lab: Winlab) -> None:
    found = {name: (row["role"], row["cluster"], row["answers"]) for name, row in rows(lab).items()}
    assert found == {"agent-1": ("machine", False, True), "build-1": ("machine", False, True)}


def test_commands_work_in_them(lab: Winlab) -> None:
    assert lab.ok("exec", "agent-1", *ON, "--", "hostname").strip() == "agent-1"
    assert lab.ok("exec", "build-1", *ON, "--", "hostname").strip() == "BUILD-1"


def test_they_know_each_other_by_name(lab: Winlab) -> None:
    said = lab.ok("exec", "agent-1", *ON, "--", f"getent ahostsv4 build-1.{LAB}.winlab.internal")
    assert said.split()[0] == rows(lab)["build-1"]["address"]


def test_winlab_s_scripts_run_in_them(lab: Winlab) -> None:
    """Those for Windows are on its payload CD, which has nothing else here."""
    for name in ("agent-1", "build-1"):
        (told,) = lab.items("logs", name, *ON)
        assert (told["problems"], bool(told["logs"])) == ([], True), told


@pytest.mark.parametrize(
    "words",
    [
        ("kubeconfig",),
        ("kubeconfig", "--merge"),
        ("kubectl", "--", "get", "nodes"),
        ("test", "readiness"),
        ("test", "smoke"),
        ("push", "kubelet", "agent-1", "--restore"),
        ("load", "nothing:here"),
    ],
)
def test_commands_that_need_a_cluster_say_so(lab: Winlab, words: tuple[str, ...]) -> None:
    at = words.index("--") if "--" in words else len(words)
    done = lab(*words[:at], *ON, *words[at:])
    assert (done.returncode, NONE in done.stderr) == (5, True), done.stderr


def test_a_second_run_changes_nothing(lab: Winlab) -> None:
    assert worked(lab.events(*CREATE)) == {}
    assert lab("diff", *ON).returncode == 0
    lab.ok("repair", *ON, "--check")


def test_a_machine_comes_and_goes(lab: Winlab) -> None:
    lab.ok("node", "add", "agent", *ON)
    assert rows(lab)["agent-2"]["answers"]
    lab.ok("node", "remove", "agent-2", *ON)
    assert sorted(rows(lab)) == ["agent-1", "build-1"]


def test_a_machine_is_rebuilt(lab: Winlab) -> None:
    lab.ok("exec", "agent-1", *ON, "--", "sudo touch /old")
    lab.ok("node", "rebuild", "agent-1", *ON)
    assert lab.ok("exec", "agent-1", *ON, "--", "ls /").split().count("old") == 0


def test_it_stops_and_starts(lab: Winlab) -> None:
    lab.ok("stop", *ON)
    assert {row["state"] for row in rows(lab).values()} == {"off"}
    lab.ok("start", *ON)
    assert all(row["answers"] for row in rows(lab).values())


def test_destroy_leaves_nothing(before: Traces, lab: Winlab) -> None:
    lab.ok("destroy", *ON)
    assert added(before, traces(), LAB) == []
