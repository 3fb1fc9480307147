"""The reference pages list what the code has, and the action for CI uses only that."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from reference import commands, messages
from reference.messages import Message
from winlab.cli import pages
from winlab.errors import ExitCode

ROOT = Path(__file__).parents[3]
# codes that no error has: results, and commands that end early
RESULTS = {ExitCode.OK, ExitCode.PARTLY, ExitCode.STOPPED, ExitCode.DIFFERS, ExitCode.CLOSED, ExitCode.INTERRUPTED}


def flags(command: commands.Command) -> set[str]:
    return {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}


def test_commands_of_groups_and_arguments_are_listed() -> None:
    page = commands.page()
    assert "## winlab snapshot save\n" in page
    assert "```\nwinlab exec NODE COMMAND... [OPTIONS]\n```\n" in page
    assert "## winlab host admit" not in page  # hidden


def test_each_example_has_a_line() -> None:
    """All examples of a command were one paragraph."""
    lines = commands.page().splitlines()
    for _, command in commands.commands():
        for example in pages.examples(command):
            assert any(line.startswith(example) for line in lines), example
    assert not [line for line in lines if line.startswith("Examples: ")]


def test_each_option_is_described_once_where_many_commands_have_it() -> None:
    page = commands.page()
    assert page.count("| `--lab NAME`") == 1
    assert page.index("| `--lab NAME`") > page.index("## Options of many commands")


def test_messages_are_found_with_code_and_cure(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        'raise UsageError(f"\'{name}\' is not a {kind}.", cure="Give one.")\n'
        'raise errors.Other("not one of ours")\n'
        "raise HostError(text)\n"
        'raise HostError("There is none.", why=why, cure=cure(name))\n'
    )
    found = messages.messages(tmp_path)
    assert found == [Message("'…' is not a ….", 2, "Give one."), Message("There is none.", 4, "")]


def test_every_exit_code_of_an_error_has_its_messages_and_its_help() -> None:
    page = messages.page()
    help_by_code = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    for code in set(ExitCode) - RESULTS:
        assert f"## {code}: {messages.MEANS[code]}\n" in page
        assert re.search(rf"^### {int(code)}\b", help_by_code, re.M), code
    for code in RESULTS - {ExitCode.OK}:
        assert re.search(rf"^### .*\b{int(code)}\b", help_by_code, re.M), code


def test_every_variable_that_winlab_reads_is_documented() -> None:
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    labels = {"WINLAB_STORE"}  # of a file system
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "winlab").rglob("*.py"))
    read = set(re.findall(r'"(WINLAB_[A-Z_]+[A-Z])"', source)) - labels
    assert len(read) > 5
    assert [name for name in sorted(read) if f"| `{name}` |" not in page] == []


def test_the_action_uses_commands_and_flags_that_exist() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    known = dict(commands.commands())
    lines = [line for step in action["runs"]["steps"] for line in step.get("run", "").splitlines()]
    used = [found for line in lines for found in re.findall(r"(winlab (?:host )?[a-z]+)((?: (?!\|)\S+)*)", line)]
    assert {name for name, _ in used} >= {"winlab host setup", "winlab create", "winlab support"}
    for name, rest in used:
        assert {word for word in rest.split() if word.startswith("--")} <= flags(known[name]), name


def test_the_action_passes_inputs_by_variables_only() -> None:
    """An expression in a command would be run as the shell reads it, whatever it contains."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    action = yaml.safe_load(text)
    assert not [step for step in action["runs"]["steps"] if "${{" in step.get("run", "")]
    assert set(re.findall(r"\$\{\{ inputs\.(\w+)", text)) | {"run"} == set(action["inputs"])
