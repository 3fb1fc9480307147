"""The user's defaults: which of four places counts, what the file may have, what the commands show and change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import results
import typer
from commands import ran

from winlab import run
from winlab.cli import defaults, main, manual
from winlab.version import __version__

MAIN: Any = typer.main.get_command(main.app)


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's file, which does not exist yet."""
    for name in [one for one in os.environ if one.startswith("WINLAB_") and one != "WINLAB_LIBVIRT_URI"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WINLAB_CONFIG", str(tmp_path / "winlab" / "config.yaml"))
    return tmp_path / "winlab" / "config.yaml"


def value(key: str) -> tuple[str, str]:
    """The value of a setting, and where it comes from."""
    found = results.item(ran("config", "get", key, "-o", "json").stdout)
    return found["value"], found["origin"]


def lab_of_a_plan(*words: str) -> str:
    done = ran("plan", "1-0-1", "-o", "json", *words)
    assert done.exit_code == 0, done.stderr
    return str(results.item(done.stdout)["lab"])


def test_an_option_counts_more_than_a_variable_than_the_file_than_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert value("lab") == ("lab", "default")
    assert ran("config", "set", "lab", "from-file").exit_code == 0
    assert value("lab") == ("from-file", "file")
    assert lab_of_a_plan() == "from-file"
    assert "WINLAB_LAB" not in os.environ
    monkeypatch.setenv("WINLAB_LAB", "from-variable")
    assert value("lab") == ("from-variable", "variable")
    assert lab_of_a_plan() == "from-variable"
    assert lab_of_a_plan("--lab", "from-option") == "from-option"
    assert "WINLAB_LAB is set, and counts more" in ran("config", "set", "lab", "other").stderr
    assert os.environ["WINLAB_LAB"] == "from-variable"


def test_settings_are_set_and_unset_and_the_other_lines_stay(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("# mine\nspec: 1-2-1\nlab: a\n")
    assert ran("config", "set", "lab", "b").exit_code == 0
    assert file.read_text() == '# mine\nspec: 1-2-1\nlab: "b"\n'
    assert value("spec") == ("1-2-1", "file")
    assert ran("config", "unset", "lab").exit_code == 0
    assert file.read_text() == "# mine\nspec: 1-2-1\n"
    assert value("lab") == ("lab", "default")


def test_options_of_one_command_and_variables_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran("config", "set", "node.add.count", "2").exit_code == 0
    assert ran("config", "set", "cache", "/big").exit_code == 0
    rows = {row["name"]: row for row in results.items(ran("config", "list", "-o", "json").stdout)}
    assert rows["node.add.count"]["variable"] == "WINLAB_NODE_ADD_COUNT"
    assert (rows["cache"]["value"], rows["cache"]["origin"]) == ("/big", "file")
    assert "create.locked" not in rows
    assert "create.locked" in ran("config", "list", "--all").stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("set labb x", 5, "Did you mean 'lab'"),
        ("get nothing-like-it", 5, "There is no setting 'nothing-like-it'."),
        ("unset nothing-like-it", 5, "There is no setting"),
        ("set lab a_b", 2, "'a_b' can't be the name of a lab."),
        ("set output nothing", 2, "nothing"),
        ("set node.add.count 0", 2, "--count"),
        ("set until never", 2, "never"),
    ],
)
def test_what_can_t_be_set(words: str, code: int, says: str, file: Path) -> None:
    done = ran("config", *words.split())
    assert done.exit_code == code
    assert says in done.stderr
    assert not file.exists()


@pytest.mark.parametrize("text", ["- a\n", "a_b: 1\n", "a: [\n", "lab\n", "a: 1\na: 2\n", "1: 2\n"])
def test_a_file_that_can_t_be_used_is_named(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    done = ran("plan", "1-0-1")
    assert done.exit_code == 2
    assert f"Your settings in '{file}' can't be used." in done.stderr


def test_values_are_as_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    file.write_text("rehearse: true\nnode.add.count: 3\nallow-path: [/a, /b]\nlab: 1.30\nnew.setting: x\n")
    with defaults.applied() as added:
        found = {name: os.environ[name] for name in sorted(added)}
    assert found == {
        "WINLAB_ALLOW_PATH": "/a /b",
        "WINLAB_LAB": "1.30",
        "WINLAB_NEW_SETTING": "x",
        "WINLAB_NODE_ADD_COUNT": "3",
        "WINLAB_REHEARSE": "true",
    }
    file.write_text("new.setting: x\n")
    assert "'new.setting' in it is not a setting of this winlab." in ran("config", "list").stderr
    (unknown,) = [row for row in results.items(ran("config", "list", "-o", "json").stdout) if not row["variable"]]
    assert (unknown["name"], unknown["value"]) == ("new.setting", "x")


def test_each_option_has_a_variable_of_its_own() -> None:
    known = defaults.keys(MAIN)
    variables = [key.variable for key in known.values()]
    assert len(variables) == len(set(variables))
    assert {"lab", "spec", "output", "mirror", "kube-proxy", "yes", "quiet", "debug", "stop.force"} < set(known)
    assert not {"set", "version", "help", "diff.spec", "apply.spec"} & set(known)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("winlab sta", ["status", "start"]),
        ("winlab config get sup", ["support-seconds", "support.to"]),
        ("winlab docs exit", ["exit-codes"]),
        ("winlab plan --reh", ["--rehearse"]),
        ("winlab node a", ["add"]),
    ],
)
def test_a_shell_gets_completions(monkeypatch: pytest.MonkeyPatch, words: str, found: list[str]) -> None:
    monkeypatch.setenv(manual.VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert sorted(ran().stdout.split()) == sorted(found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_winlab(shell: str) -> None:
    shown = ran("completion", shell).stdout
    assert f"{manual.VARIABLE}=complete_{shell}" in shown
    assert "winlab" in shown


def test_the_version() -> None:
    shown = f"winlab {__version__}\n"
    assert ran("version").stdout == ran("--version").stdout == ran("-V").stdout == shown
    assert results.item(ran("version", "-o", "json").stdout)["version"] == __version__


def test_docs_are_listed_and_printed() -> None:
    assert "exit-codes" in ran("docs").stdout
    assert "exit-codes" in ran("docs", "-o", "name").stdout.splitlines()
    assert results.item(ran("docs", "exit-codes", "-o", "json").stdout)["title"] == "Exit codes"
    assert ran("docs", "exit-codes").stdout.startswith("# Exit codes\n")
    assert ran("docs", "exit-codes.md").stdout.startswith("# Exit codes\n")
    done = ran("docs", "exit-code")
    assert done.exit_code == 5
    assert "Did you mean 'exit-codes'?" in done.stderr


def test_a_page_is_shown_in_a_pager_at_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[list[object]] = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(run, "replace", lambda words: shown.append(words))
    monkeypatch.setenv("PAGER", "more -s")
    manual.docs("specs")
    assert [str(word).rpartition("/")[2] for word in shown[0]] == ["more", "-s", "specs.md"]
