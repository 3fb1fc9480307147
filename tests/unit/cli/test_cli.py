"""The command line, as far as it touches nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import results
import typer
from commands import run as winlab
from isos import SERVER, make_server_medium, make_wim

from winlab import files
from winlab.cli import main
from winlab.node import Node
from winlab.operations import render


def test_plan_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert winlab(monkeypatch, "plan", "--spec", "1-1-1", "--rehearse", "--output", "json") == 0
    first = capsys.readouterr().out
    assert [n["name"] for n in results.item(first)["nodes"]] == ["controller-1", "node-1"]
    assert winlab(monkeypatch, "plan", "--spec", "1-1-1", "--rehearse", "--output", "json") == 0
    assert capsys.readouterr().out == first


def test_plan_as_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert winlab(monkeypatch, "plan", "--os", "windows-2022", "--lab", "my-lab", "-o", "wide") == 0
    shown = capsys.readouterr().out
    for text in (
        "Windows Server 2022 SERVERDATACENTERCORE",
        "my-lab.node-1.answer.iso",
        "MTU 1500",
        "Nothing was touched",
    ):
        assert text in shown


def test_plan_says_which_kubernetes_the_workers_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert winlab(monkeypatch, "plan", "--os", "windows-2019", "--output", "json") == 0
    shown = capsys.readouterr()
    assert results.item(shown.out)["cluster"]["versions"]["kubernetes"] == "v1.34.4"
    assert "Using Kubernetes v1.34.4 (not v" in shown.err
    assert winlab(monkeypatch, "plan", "--os", "windows-2019", "--set", "kubernetes.version=1.34") == 0
    assert "Using Kubernetes" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--os", "windows-2025", "--iso", "{medium}"), "has no image named 'Windows Server 2025"),
        (("--iso", "{medium}", "--set", "workers.language=de-DE"), "workers.language is de-DE"),
        (("--iso", "{text}"), "passwd"),
        (("--set", "workers.openssh={text}"), "is not a ZIP file"),
        (("--set", "workers.template={text}"), "template"),
        (("--set", "workers.drivers={text}"), "passwd"),
    ],
)
def test_plan_refuses_what_create_would_refuse(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    says: str,
) -> None:
    """ux D2: a wrong medium and /etc/passwd were fine, and listed as files that leave the host."""
    wim = make_wim([SERVER], edition="ServerStandardEval", language="en-US")
    medium, text = make_server_medium(tmp_path / "ms.iso", wim=wim), tmp_path / "passwd"
    text.write_text("root:x:0:0:root:/root:/bin/bash\n" * 2000)
    edition = ("--set", "workers.edition=standard-desktop")  # which the medium has
    assert winlab(monkeypatch, "plan", *edition, "--iso", str(medium)) == 0
    capsys.readouterr()
    assert winlab(monkeypatch, "plan", *edition, *(word.format(medium=medium, text=text) for word in words)) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_plan_lists_the_files_of_this_host_that_leave_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script, path = tmp_path / "elsewhere" / "first.ps1", tmp_path / "spec" / "lab.yaml"
    for one in (script, path):
        one.parent.mkdir()
    script.touch()
    path.write_text(f"workers: {{scripts: [{script}]}}\n")
    words = ("plan", "--spec", str(path), "--output")
    assert winlab(monkeypatch, *words, "json") == 2
    assert f"--allow-path {script.parent}" in capsys.readouterr().err
    assert winlab(monkeypatch, *words, "json", "--allow-path", str(script.parent)) == 0
    (row,) = results.item(capsys.readouterr().out)["host_files"]
    assert row == {"path": str(script), "field": "workers.scripts", "pool": "node"}
    assert winlab(monkeypatch, *words, "table", "--allow-path", str(script.parent)) == 0
    shown = capsys.readouterr().out
    assert "Files of this host that leave it" in shown
    assert script.name in shown


def test_render(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert winlab(monkeypatch, "plan", "--os", "windows-2025", "--render", str(tmp_path)) == 0
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        "node-1/domain.xml",
        "node-1/answer/Autounattend.xml",
        "controller-1/seed/user-data",
        "network.json",
    } <= names


def test_a_screenshot_is_not_written_through_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "screen.png"
    victim.write_text("theirs")
    file.symlink_to(victim)
    monkeypatch.setattr(Node, "screenshot", lambda _: b"PNG")
    assert winlab(monkeypatch, "screenshot", "node-1", str(file)) == 0
    assert (file.read_bytes(), victim.read_text()) == (b"PNG", "theirs")


def test_render_follows_no_link_below_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, theirs = tmp_path / "made", tmp_path / "theirs"
    for folder in (made, theirs):
        folder.mkdir()
    (theirs / "victim").write_text("theirs")
    (made / "network.json").symlink_to(theirs / "victim")
    words = ("plan", "--os", "windows-2025", "--render", str(made))
    assert winlab(monkeypatch, *words) == 2
    assert f"'{made}/network.json' would be overwritten" in capsys.readouterr().err
    assert (theirs / "victim").read_text() == "theirs"
    (made / "network.json").unlink()
    assert winlab(monkeypatch, *words) == 0
    shutil.rmtree(made / "node-1")
    (made / "node-1").symlink_to(theirs)
    assert winlab(monkeypatch, *words) == 2
    assert "node-1' is a link" in capsys.readouterr().err
    assert [one.name for one in theirs.iterdir()] == ["victim"]


def test_render_does_not_overwrite_files_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ux D1: they were lost, also those that an earlier plan wrote and the user changed."""
    made = tmp_path / "made"
    words = ("plan", "--spec", "1-0-1", "--render", str(made))
    made.mkdir()
    (made / "network.json").write_text("precious")
    assert winlab(monkeypatch, *words) == 2
    assert "Name a folder that is new or empty" in capsys.readouterr().err
    assert [(one.name, one.read_text()) for one in made.iterdir()] == [("network.json", "precious")]
    (made / "network.json").unlink()
    assert winlab(monkeypatch, *words) == 0
    assert winlab(monkeypatch, *words) == 0
    (made / "network.json").write_text("precious")
    assert winlab(monkeypatch, *words) == 2
    assert (made / "network.json").read_text() == "precious"


def test_render_removes_what_an_earlier_plan_wrote_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ux D1: the folder of a plan with one node had the files of two more."""
    made = tmp_path / "made"
    assert winlab(monkeypatch, "plan", "--spec", "1-3-1", "--rehearse", "--render", str(made)) == 0
    (made / "notes.txt").write_text("mine")
    (made / "node-2" / "notes.txt").write_text("mine")
    (made / "node-3" / "domain.xml").write_text("changed")
    assert winlab(monkeypatch, "plan", "--spec", "1-0-1", "--rehearse", "--render", str(made)) == 0
    left = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert {name for name in left if name.startswith("node-")} == {"node-2/notes.txt", "node-3/domain.xml"}
    assert {"notes.txt", "controller-1/domain.xml"} <= left
    assert not (made / "node-1").exists()


def test_a_list_of_rendered_files_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Anyone who may write to the folder can change the list."""
    made, victim = tmp_path / "made", tmp_path / "victim"
    made.mkdir()
    victim.write_text("theirs")
    (made / "link").symlink_to(tmp_path)
    digest = hashlib.sha256(b"theirs").hexdigest()
    names = ("../victim", str(victim), "link/victim")
    (made / render.LIST).write_text(json.dumps({**{name: [digest] for name in names}, "x": 1, "": ["y"]}))
    assert winlab(monkeypatch, "plan", "--spec", "1-0-1", "--render", str(made)) == 0
    assert victim.read_text() == "theirs"


def test_an_interrupted_render_is_done_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert winlab(monkeypatch, "plan", "--spec", "1-1-1", "--rehearse", "--render", str(made)) == 0
    whole, written = files.write_named, list[Path]()

    def interrupt(path: Path, content: str | bytes) -> None:
        if len(written) > 3:
            raise OSError("interrupted")
        written.append(path)
        whole(path, content)

    words = ("plan", "--spec", "1-1-1", "--rehearse", "--set", "workers.memory=3GiB", "--render", str(made))
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_named", interrupt)
        assert winlab(patched, *words) == 2
    assert winlab(monkeypatch, *words) == 0
    assert winlab(monkeypatch, "plan", "--spec", "1-0-1", "--render", str(made)) == 0
    assert not (made / "node-1").exists()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["plan", "--spec", "9-9-9"], 2, "not valid"),
        (["plan", "--spec", "x.yaml"], 2, "can't be read"),
        (["plan", "--rehearse", "--iso", "own.iso"], 2, "--rehearse brings its own media"),
        (["plan", "--rehearse", "--os", "debian-13"], 2, "--rehearse simulates Windows, and debian-13 is not Windows"),
        (["plan", "--iso", "/nowhere.iso"], 2, "can't be read"),
        (["plan", "--lab", "Bad_Name"], 2, "can't be the name of a lab"),
        (["plan", "--set", "workers.cpus=0"], 2, "workers.cpus"),
        (["plan", "--output", "xml"], 2, "xml"),
        (["nonsense"], 2, "nonsense"),
        (["create", "--os", "windows-2022"], 5, "--rehearse"),
        (["image", "build", "beos"], 5, "no image named"),
        (["image", "build", "windows-2022"], 5, "--iso PATH"),
    ],
)
def test_bad_input_has_a_code_and_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], code: int, says: str
) -> None:
    assert winlab(monkeypatch, *args) == code
    shown = capsys.readouterr().err
    assert says in shown
    assert "Traceback" not in shown


def test_environment_names_the_lab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WINLAB_LAB", "from-env")
    assert winlab(monkeypatch, "plan", "--output", "json") == 0
    assert results.item(capsys.readouterr().out)["lab"] == "from-env"


def test_bugs_are_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from winlab.design.plan import make

    def explode(*args: object, **more: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(make, "make", explode)
    assert winlab(monkeypatch, "plan") == 1
    shown = capsys.readouterr().err
    assert "an unexpected RuntimeError: boom" in shown
    assert "Traceback" not in shown
    assert winlab(monkeypatch, "--debug", "plan") == 1
    assert capsys.readouterr().err.endswith(f'raise RuntimeError("boom")\nRuntimeError: boom\n{shown}')


def test_debug_adds_the_traceback_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("plan", "--spec", "9-9-9")
    assert winlab(monkeypatch, *words) == 2
    shown = capsys.readouterr().err
    assert winlab(monkeypatch, "--debug", *words) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith(shown)


def commands_with_a_lab(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Each command with an option --lab, and a word for each argument that it needs."""
    if words and any("--lab" in parameter.opts for parameter in group.params):
        needed = [one for one in group.params if one.param_type_name == "argument" and one.required]
        options = [part for one in group.params if one.required for part in (one.opts[0], "x") if "-" in one.opts[0]]
        yield (*words, "--lab", *options, *(["on"] if words == ("autostart",) else ["node-1"] * len(needed)))
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_with_a_lab(command, *words, name)


LABS_COMMANDS = list(commands_with_a_lab(typer.main.get_command(main.app)))


def test_there_are_such_commands() -> None:
    assert len(LABS_COMMANDS) > 30
    assert {"plan", "create", "status", "support"} < {words[0] for words in LABS_COMMANDS}


@pytest.mark.parametrize("words", LABS_COMMANDS, ids=" ".join)
def test_a_lab_name_with_a_slash_is_an_error_of_usage(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = words.index("--lab") + 1
    assert winlab(monkeypatch, *words[:where], "a/b", *words[where:]) == 2
    assert "'a/b' can't be the name of a lab." in capsys.readouterr().err
    monkeypatch.setenv("WINLAB_LAB", "../b")
    assert winlab(monkeypatch, *words[: where - 1], *words[where:]) == 2
    assert "'../b' can't be the name of a lab." in capsys.readouterr().err


def test_a_lab_name_with_a_slash_in_other_places(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert winlab(monkeypatch, "support", "a/b") == 2
    assert "'a/b' can't be the name of a lab." in capsys.readouterr().err
    assert winlab(monkeypatch, "plan", "--lab", "a/b", "--output", "json") == 2
    assert results.error(capsys.readouterr().out)["exit_code"] == 2
