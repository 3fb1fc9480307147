"""Words of the command line: LAB, SPEC and LAB/NODE as arguments; options before and after the command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import results
from commands import Ran, ran
from commands import run as winlab

from winlab import Lab, Node, run
from winlab.cli import complete
from winlab.cli.verbatim import separated


def planned(*words: str) -> tuple[str, int]:
    """The lab and the number of nodes of a plan."""
    done = ran(*words, "--rehearse")
    assert done.exit_code == 0, done.stderr
    found = results.item(done.stdout)
    return found["lab"], len(found["nodes"])


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "1-2-1", "--lab", "ci", "-o", "json"),
        ("plan", "--lab", "ci", "1-2-1", "-o", "json"),
        ("plan", "--spec", "1-2-1", "--lab", "ci", "-o", "json"),
        ("--lab", "ci", "-o", "json", "plan", "1-2-1"),
        ("-q", "--lab=ci", "plan", "1-2-1", "--debug", "--output=json"),
        ("--lab", "ci", "plan", "--lab", "ci", "1-2-1", "--spec", "1-2-1", "-o", "json"),
    ],
    ids=" ".join,
)
def test_lab_spec_and_format_can_be_given_in_several_places(words: tuple[str, ...]) -> None:
    assert planned(*words) == ("ci", 3)


def test_a_word_counts_more_than_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LAB": "other", "SPEC": "1-1-1", "OUTPUT": "json"}.items():
        monkeypatch.setenv(f"WINLAB_{name}", value)
    assert planned("plan") == ("other", 2)
    assert planned("plan", "1-2-1") == ("other", 3)
    assert planned("--lab", "ci", "plan") == ("ci", 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plan 1-2-1 --spec 1-1-1", "'--spec' has two values: '1-2-1' and '1-1-1'."),
        ("--lab a plan --lab b", "'--lab' has two values: 'a' and 'b'."),
        ("status a --lab b", "'--lab' has two values: 'a' and 'b'."),
        ("--lab a status b", "'--lab' has two values: 'a' and 'b'."),
        ("support a --lab b", "'--lab' has two values: 'a' and 'b'."),
        ("stop a/node-1 b/node-1", "'--lab' has two values: 'a' and 'b'."),
        ("ssh a/node-1 --lab b", "'--lab' has two values: 'a' and 'b'."),
        ("diff 1-1-1 -s 1-2-1", "'--spec' has two values: '1-1-1' and '1-2-1'."),
        ("-o json plan -o table", "'--output' has two values: 'json' and 'table'."),
        ("exec a/node-1 --lab b ls", "'--lab' has two values: 'a' and 'b'."),
        ("-o json kubectl get nodes", "'winlab kubectl' has no option '--output'."),
        ("--lab a list", "'winlab list' has no option '--lab'."),
        ("status a_b", "'a_b' can't be the name of a lab."),
        ("ssh a_b/node-1", "'a_b' can't be the name of a lab."),
    ],
)
def test_two_values_or_no_such_option_are_an_error(words: str, says: str) -> None:
    done = ran(*words.split())
    assert done.exit_code == 2
    assert says in done.stdout + done.stderr


def test_a_file_of_events_in_several_places(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    assert ran("--events", str(a), "docs", "--events", str(a)).exit_code == 0
    assert [event["event"] for event in results.events(a)] == ["RunEnded"]
    done = ran("--events", str(a), "docs", "--events", str(b))
    assert f"'--events' has two values: '{a}' and '{b}'." in done.stderr


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What commands of one node are called with."""
    calls: list[tuple[object, ...]] = []

    def stream(self: Node, command: list[str], *_: Any, **more: Any) -> int:
        calls.append((self.lab, self.name, command))
        return 0

    monkeypatch.setattr(Node, "stream", stream)
    monkeypatch.setattr(Node, "ssh", lambda self, command=(): [self.lab, self.name, *command])
    monkeypatch.setattr(run, "replace", lambda words: calls.append(tuple(words)))
    monkeypatch.setattr(Lab, "become_kubectl", lambda self, words: calls.append((self.name, *words)))
    monkeypatch.setattr(Lab, "stop", lambda self, nodes, **more: calls.append((self.name, *nodes)) or [])
    monkeypatch.setattr(Lab, "kubeconfig", lambda self: calls.append((self.name,)) or "")
    return calls


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("exec --via ssh ci/node-1 /bin/ls", ("ci", "node-1", ["/bin/ls"])),
        ("exec ci/node-1 ls -la --lab x", ("ci", "node-1", ["ls", "-la", "--lab", "x"])),
        ("--lab ci exec node-1 -- ls -q", ("ci", "node-1", ["ls", "-q"])),
        ("ssh node-1", ("lab", "node-1")),
        ("ssh ci/node-1 -- ls -l", ("ci", "node-1", "ls", "-l")),
        ("ssh ci/node-1 ls --lab x", ("ci", "node-1", "ls", "--lab", "x")),
        ("stop ci/node-1 node-2", ("ci", "node-1", "node-2")),
        ("kubeconfig ci", ("ci",)),
        ("kubectl get nodes --help", ("lab", "get", "nodes", "--help")),
        ("kubectl --lab ci exec pod -- ls", ("ci", "exec", "pod", "--", "ls")),
        ("kubectl -n kube-system get pods -o wide", ("lab", "-n", "kube-system", "get", "pods", "-o", "wide")),
        ("kubectl -- get nodes", ("lab", "get", "nodes")),
    ],
)
def test_a_command_gets_its_words(
    monkeypatch: pytest.MonkeyPatch, called: list[tuple[object, ...]], words: str, call: tuple[object, ...]
) -> None:
    assert winlab(monkeypatch, *words.split()) == 0
    assert called == [call]


@pytest.mark.parametrize(("own", "same"), [(0, "-x -- a b"), (1, "-x a -- b"), (2, "-x a b")])
def test_the_own_words_of_a_command_are_counted(own: int, same: str) -> None:
    assert separated(["-x", "a", "b"], {"--lab"}, own) == same.split()


def test_nodes_are_completed_after_their_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"lab": ["node-1"], "ci": ["node-1", "node-2"]}
    monkeypatch.setattr(
        Lab, "machines", lambda self: [SimpleNamespace(tag=SimpleNamespace(node=one)) for one in nodes[self.name]]
    )
    context: Any = SimpleNamespace(params={"lab": None})
    assert complete.complete_nodes(context, "no") == ["node-1"]
    assert complete.complete_nodes(context, "ci/") == ["ci/node-1", "ci/node-2"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("stopp", "Did you mean 'stop'?"),
        ("up", "Did you mean 'winlab create'?"),
        ("halt", "Did you mean 'winlab stop'?"),
        ("reload", "Did you mean 'winlab restart'?"),
        ("top", "Did you mean 'winlab status --watch'?"),
        ("images", "Did you mean 'winlab image list'?"),
        ("node ad", "Did you mean 'add'?"),
        ("image prun", "Did you mean 'prune'?"),
        ("zzz", "'winlab --help' lists the commands."),
    ],
)
def test_an_unknown_command_is_an_error_that_names_a_similar_one(words: str, says: str) -> None:
    done: Ran = ran(*words.split())
    assert done.exit_code == 2
    assert says in done.stderr
