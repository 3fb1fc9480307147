"""The real Windows programs of known-good minors, under Wine, read what winlab renders for Windows; and Windows'
commands in the answer files are real ones."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import minors
import pytest
import rendered
from lxml import etree
from windows_wine import Answer, call

from winlab import data
from winlab.design import spec
from winlab.design.catalog import versions
from winlab.design.plan import make as plan
from winlab.design.plan.facts import HostFacts
from winlab.design.render import answer as windows
from winlab.design.render.templates import expand
from winlab.supply.images import stock

NS = {"u": "urn:schemas-microsoft-com:unattend"}


def ask(cases: list[rendered.Case], minor: str, root: Path, drive: Path) -> list[Answer]:
    """Run all cases, each in a folder of its own on D:, by the programs of the minor, built by winlab's own source."""
    (drive / "bin").mkdir()
    for name, path in minors.programs(minor, "windows").items():
        shutil.copyfile(path, drive / f"bin/{name}.exe")
    calls = []
    for number, case in enumerate(cases):
        folder = drive / str(number)
        folder.mkdir()
        for name, text in case.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        arguments = [argument.replace("{folder}", f"D:\\{number}") for argument in case.arguments]
        calls.append([f"D:\\bin\\{case.program}.exe", *arguments])
    return call(root, drive, calls)


@pytest.mark.parametrize("minor", minors.chosen())
def test_the_real_windows_programs_accept_rendered_files_and_refuse_wrong_ones(
    minor: str, standin_root: Path, tmp_path: Path
) -> None:
    chosen = versions.get(minor)
    cases = [*rendered.cases(chosen, "windows"), *rendered.refusals(chosen, "windows")]
    problems: list[str] = []
    for number, (case, answer) in enumerate(zip(cases, ask(cases, minor, standin_root, tmp_path), strict=True)):
        problems += case.problems(tmp_path / str(number), answer.code, answer.output, answer.errors)
    assert not problems, "\n".join(problems)


def test_the_answer_file_s_commands_are_windows_own(standin_root: Path, tmp_path: Path) -> None:
    """reg.exe and cmd.exe do what the answer file has them do: a key, two values, and lines on the serial port."""
    wanted = spec.load("1-1-1", ["workers.os=windows-2022"])
    made = plan.make(wanted, "lab", HostFacts(), stock.take(wanted))
    assert made.builders
    root = etree.fromstring(windows.answer_xml(made.builders[0].nodes[0], "x", expand).encode())
    lines = [
        str(one.text) for one in root.iterfind(".//u:Path", NS) if str(one.text).startswith(("reg.exe", "cmd.exe"))
    ]
    lines += [str(one.text) for one in root.iterfind(".//u:CommandLine", NS) if str(one.text).startswith("cmd.exe /c")]
    added = [shlex.split(line.replace("\\", "\\\\")) for line in lines if line.startswith("reg.exe")]
    said = [line for line in lines if ">COM1" in line]
    assert len(added) >= 3
    assert len(said) >= 2
    asked = [["reg.exe", "query", words[2], *(words[3:5] if words[3] == "/v" else [])] for words in added]
    # a file stands in for the port
    told = [["cmd.exe", "/c", line.removeprefix("cmd.exe /c ").replace(">COM1", r">>D:\port.txt")] for line in said]
    answers = call(standin_root, tmp_path, [*added, *asked, *told])
    for words, answer in zip([*added, *asked, *told], answers, strict=True):
        assert answer.code == 0, (words, answer)
    for words, answer in zip(added, answers[len(added) :], strict=False):
        if words[3] == "/v":
            row = next(line.split() for line in answer.output.splitlines() if words[4] in line)
            assert row == [words[4], words[6], f"0x{int(words[8]):x}"]
    serial = (tmp_path / "port.txt").read_text().splitlines()
    assert [line.strip() for line in serial] == [f"winlab: phase={name}" for name in ("specialize", "firstLogon")]


def test_the_script_of_windows_pe(standin_root: Path, tmp_path: Path) -> None:
    """Wine's cmd.exe runs it: the port gets its name, and a log of errors is reported only when it has grown."""
    errors = tmp_path / "$WINDOWS.~BT/Sources/Panther/setuperr.log"
    errors.parent.mkdir(parents=True)
    errors.write_text("one\r\n")
    (tmp_path / "pe.cmd").write_text(bounded((data.folder("unattend") / "windows/pe.cmd").read_text()), newline="\r\n")
    key = r"HKLM\SYSTEM\CurrentControlSet\Enum\ACPI\PNP0501\1"
    _, done, asked = call(
        standin_root,
        tmp_path,
        [
            ["reg.exe", "add", key, "/f"],
            ["cmd.exe", "/c", r"D:\pe.cmd", "D:"],
            ["reg.exe", "query", rf"{key}\Device Parameters", "/v", "PortName"],
        ],
    )
    assert done.code == 0, done
    assert asked.output.split()[-3:] == ["PortName", "REG_SZ", "COM1"], asked
    told = [line.strip() for line in (tmp_path / "port.txt").read_text(errors="replace").splitlines()]
    assert told[0] == "winlab: phase=windowsPE"
    begin = told.index(r"winlab: log=D:\$WINDOWS.~BT\Sources\Panther\setuperr.log")
    again = told.index(told[begin], begin + 1)
    assert (told[begin + 1 : again], told[again + 1 :]) == (["one"], ["one", "two"])


def bounded(script: str) -> str:
    """The script with three rounds in place of an endless loop; after the second the log has grown. D: has it all."""
    changes = {
        ">COM1": r">>D:\port.txt",
        "X:\\": "D:\\",
        "ping -n 3 127.0.0.1": "ver",
        "call :nap\ncall :nap\ngoto look\n": "set /a round+=1\n"
        r"if %round%==2 echo two>>D:\$WINDOWS.~BT\Sources\Panther\setuperr.log"
        "\nif %round% lss 3 goto look\nexit /b 0\n",
    }
    for old, new in changes.items():
        assert old in script, old
        script = script.replace(old, new)
    return script
