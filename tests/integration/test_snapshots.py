"""The shared labs, saved, copied and put back: real guests, a real cluster, real OVN."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - runs pytest as a user does
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import results
import yaml
from harness import LAB_A, LAB_B, Labs, On, Second, Winlab, answering, ask, is_ready, text, traces

COPY = "it-copy"


def nodes(lab: On) -> dict[str, Any]:
    rows = json.loads(text(lab("kubectl", "--", "get", "nodes", "--output=json")))["items"]
    return {row["metadata"]["name"]: row for row in rows}


def save(lab: On, name: str) -> dict[str, Any]:
    (made,) = lab.user.items("snapshot", "save", name, "--lab", lab.lab)
    return dict(made)


def has(lab: On, name: str) -> bool:
    return lab("kubectl", "--", "get", "configmap", name, "--output=name").returncode == 0


def mark(lab: On, name: str) -> None:
    lab("kubectl", "--", "delete", "configmap", name, "--ignore-not-found")  # of an earlier run, in a lab that is kept
    text(lab("kubectl", "--", "create", "configmap", name))


@pytest.fixture(scope="module")
def saved(labs: Labs) -> Iterator[dict[str, Any]]:
    """The hybrid cluster, saved while it runs."""
    mark(labs.a, "before")
    yield save(labs.a, "ready")
    text(labs.a.user("snapshot", "delete", f"{LAB_A}@ready"))


@contextmanager
def alone(labs: Labs) -> Iterator[None]:
    """Suspend the shared labs: two cores can emulate one control plane, not two at the same time."""
    for lab in (labs.a, labs.b):
        text(lab("suspend"))
    try:
        yield
    finally:
        for lab in (labs.a, labs.b):
            text(lab("resume"))


def test_the_lab_continues_after_it_was_saved(labs: Labs, saved: dict[str, Any]) -> None:
    assert (saved["name"], saved["nodes"], saved["problem"]) == (f"{LAB_A}@ready", ["controller-1", "node-1"], "")
    assert saved["memory_bytes"] > 1 << 28
    assert all(is_ready(node) for node in nodes(labs.a).values())


@contextmanager
def removed(user: Winlab) -> Iterator[On]:
    """The copy's lab, which does not exist before and after the block."""
    try:
        text(user("destroy", "--lab", COPY, "--anyone"))  # of an earlier run
        yield On(user, COPY)
    finally:
        user("destroy", "--lab", COPY)


@pytest.fixture(scope="class")
def copy(labs: Labs, saved: dict[str, Any]) -> Iterator[On]:
    with alone(labs), removed(labs.a.user) as made:
        text(labs.a.user("clone", f"{LAB_A}@ready", COPY))
        yield made


class TestCopy:
    """A copy of the hybrid cluster, and what can be done with it."""

    def test_a_copy_is_a_ready_hybrid_cluster_of_its_own(self, labs: Labs, copy: On) -> None:
        assert all(is_ready(node) for node in nodes(copy).values())
        mark(copy, "in-the-copy")
        assert has(copy, "before")
        addresses = {row["address"] for row in nodes(copy)["node-1"]["status"]["addresses"]}
        assert addresses == {"10.77.0.101", "node-1"}, "inside, it is the same"
        for node, command in (("controller-1", "hostname"), ("node-1", "hostname")):
            assert ask(copy, node, name=command)["name"].lower() == node
        status = answering(copy)
        outside = {row["external"] for row in status}
        origin = results.items(labs.a("status", "--output", "json").stdout)
        assert all(row["answers"] for row in status)
        assert outside.isdisjoint(row["external"] for row in origin)

    @pytest.mark.slow  # two minutes
    def test_verbs_work_on_a_copy(self, copy: On) -> None:
        text(copy("suspend"))
        text(copy("resume"))
        drifts = results.items(text(copy("repair", "--check", "--output", "json")))
        assert drifts == [], drifts
        save(copy, "again")
        mark(copy, "later")
        text(copy("reset", "again"))
        assert (has(copy, "in-the-copy"), has(copy, "later")) == (True, False)
        text(copy.user("snapshot", "delete", f"{COPY}@again"))

    def test_nothing_is_left_of_a_copy(self, copy: On) -> None:
        text(copy("destroy"))
        assert [row for rows in traces().values() for row in rows if COPY in row] == []


def test_the_lab_is_put_back(labs: Labs, saved: dict[str, Any]) -> None:
    mark(labs.a, "lost")
    text(labs.a("reset", "ready"))
    assert (has(labs.a, "before"), has(labs.a, "lost")) == (True, False)
    assert all(is_ready(node) for node in nodes(labs.a).values())


@pytest.mark.slow  # three minutes
def test_a_copy_with_its_own_credentials_refuses_the_lab_s(labs: Labs, saved: dict[str, Any], tmp_path: Path) -> None:
    """The command tries the lab's key and password itself; here its administrator does, and kubeadm's own file."""
    with alone(labs), removed(labs.a.user) as copy:
        said = text(labs.a.user("clone", f"{LAB_A}@ready", COPY, "--fresh-credentials"))
        assert "It has its own credentials." in said
        assert all(is_ready(node) for node in nodes(copy).values())
        for node in ("controller-1", "node-1"):
            assert ask(copy, node, name="hostname")["name"].lower() == node
        admin = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf get nodes --output=name"
        assert "node/node-1" in ask(copy, "controller-1", nodes=admin)["nodes"]
        theirs, own = (yaml.safe_load(text(lab("kubeconfig"))) for lab in (labs.a, copy))
        theirs["clusters"][0]["cluster"]["server"] = own["clusters"][0]["cluster"]["server"]
        path = tmp_path / "theirs.yaml"
        path.write_text(yaml.safe_dump(theirs))
        refused = copy("kubectl", "--", f"--kubeconfig={path}", "get", "nodes")
        assert refused.returncode != 0
        assert "Forbidden" in refused.stderr
    assert ask(labs.a, "node-1", name="hostname")["name"].lower() == "node-1"


USERS_TESTS = """\
import pytest


def test_the_lab_is_as_in_the_snapshot(winlab_linux):
    assert winlab_linux[0].execute(["test", "-e", "/var/tmp/saved"]).exit_code == 0
    assert winlab_linux[0].execute(["sudo", "rm", "/var/tmp/saved"]).exit_code == 0


@pytest.mark.winlab(scope="function")
def test_a_reset_undoes_what_the_test_before_did(winlab_linux):
    assert winlab_linux[0].execute(["test", "-e", "/var/tmp/saved"]).exit_code == 0


def test_a_failure_leaves_an_archive(winlab_lab):
    assert winlab_lab.name == ""
"""


@pytest.fixture(scope="class")
def guests(second: Second) -> Iterator[str]:
    """A snapshot's name."""
    ask(second.lab, "controller-1", write="sudo touch /var/tmp/saved; sudo rm -f /var/tmp/later")
    save(second.lab, "guests")
    yield f"{LAB_B}@guests"
    text(second.lab.user("snapshot", "delete", f"{LAB_B}@guests"))
    assert "There are no snapshots" in text(second.lab.user("snapshot", "list", LAB_B))


class TestMember:
    """A member of the group, without root, and machines without a cluster."""

    def test_a_copy_by_create_has_the_disks_of_the_snapshot(self, second: Second, guests: str) -> None:
        ask(second.lab, "controller-1", write="sudo touch /var/tmp/later")
        with removed(second.lab.user) as copy:
            text(copy("create", "--from", guests))
            seen = ask(copy, "controller-1", files="ls /var/tmp")["files"].split()
            assert ("saved" in seen, "later" in seen) == (True, False)

    def test_the_plugin_of_pytest_gives_tests_a_copy(self, second: Second, guests: str) -> None:
        user = second.lab.user
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o777)
            (folder / "test_users.py").write_text(USERS_TESTS)
            words = ["-p", "no:cacheprovider", "-p", "winlab.pytest_plugin", f"--rootdir={folder}"]
            options = [f"--winlab-from={guests}", "--winlab-support=archives", str(folder)]
            ran = subprocess.run(
                [*user.prefix, sys.executable, "-m", "pytest", *words, *options],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                env={**os.environ, **user.env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            )
            assert "1 failed, 2 passed" in ran.stdout, f"{ran.stdout}\n{ran.stderr}"
            archives = [path.name for path in (folder / "archives").iterdir()]
            assert archives == ["test_users.py-test_a_failure_leaves_an_archive.tar.gz"]
        assert not [lab["name"] for lab in user.items("list") if "pytest-" in lab["name"]]
