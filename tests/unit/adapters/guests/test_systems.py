"""How each system runs winlab's scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winlab.adapters.guests import systems
from winlab.design.system import LINUX, SYSTEMS, WINDOWS, System
from winlab.errors import UsageError
from winlab_standin.guest import cmdline


class Shell:
    """A guest that remembers commands and prints the same for all."""

    def __init__(self, prints: str = "") -> None:
        self.prints = prints
        self.asked: list[tuple[list[str], bytes]] = []

    def __call__(self, command: list[str], stdin: bytes = b"") -> str:
        self.asked.append((command, stdin))
        return self.prints


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_its_ways(system: System) -> None:
    assert systems.ways(system).command("PLACE", "logs")[-1].rpartition("\\")[2].removesuffix(".ps1") == "logs"


def test_linux_is_brought_the_program() -> None:
    shell = Shell()
    place = systems.ways(LINUX).place(shell)
    ((command, program),) = shell.asked
    assert command[-1].endswith(f" {place}")
    assert program.startswith(b"PK")


def test_a_line_by_ssh_has_utf_8_and_its_own_exit_code() -> None:
    assert systems.ways(LINUX).by_ssh("a & b") == "a & b"
    assert systems.ways(WINDOWS).by_ssh("a & b") == "chcp 65001 >nul 2>&1 || ver >nul & a & b"


def split(text: str) -> list[str]:
    """The words of a line as CommandLineToArgvW finds them (Microsoft, "Parsing C command-line arguments")."""
    words, word, quoted, started = list[str](), "", False, False
    at = 0
    while at < len(text):
        slashes = len(text[at:]) - len(text[at:].lstrip("\\"))
        at += slashes
        letter = text[at : at + 1]
        if letter == '"':
            word += "\\" * (slashes // 2)
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
            started = True
        else:
            word += "\\" * slashes
            if letter in (" ", "\t") and letter and not quoted:
                words += [word] if started or word else []
                word, started = "", False
            else:
                word += letter
        at += 1
    return [*words, word] if started or word else words


VARIABLES = {"PATH": "no & good", "A": "| more", "OS": "Windows_NT"}


def arrive(line: str) -> list[str]:
    """The words that the program gets of a line, by WinRM or ssh, with the stand-in's cmd.exe."""
    found = []
    for whole in (line, systems.ways(WINDOWS).by_ssh(line)):
        commands = cmdline.parse(cmdline.expand(whole, VARIABLES))
        (*_, last) = commands.items
        assert len(commands.items) == (1 if whole == line else 3), "the words are several commands"
        assert isinstance(last, cmdline.Simple)
        assert not last.redirections
        found.append(split(last.text.removeprefix("@")))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "words",
    [
        ["type", "a&calc.txt"],
        ["findstr", "a|b", "f"],
        ["prog", 'a" & calc & "'],
        ["msbuild", "/p:Configuration=Debug|x64"],
        ["findstr", "/r", "^a&b", "x^"],
        ["echo", "%PATH%", "%A%", "100%", "%PATH:a=b%", "%%A%%", "50% %A%"],
        ["prog", "a>b", "<c", "(d)", "!e!", "", "a b\\", 'say "hi"', "tab\there"],
        [r"C:\Program Files\a & b\x.exe", "a b"],
        ["a=b,c;d.exe", "x"],
        ["@x", "y"],
    ],
)
def test_words_for_windows_arrive_as_they_were_given(words: list[str]) -> None:
    """N10, F17: cmd.exe took parts of them for commands, pipes, redirections and variables."""
    assert arrive(systems.command_line(WINDOWS, words)) == words


@given(st.lists(st.text("ab %&|<>^()!\"'\\,;=@:~$é", max_size=8), min_size=1, max_size=4))
def test_any_words_for_windows_arrive_as_they_were_given(words: list[str]) -> None:
    assert arrive(systems.command_line(WINDOWS, ["prog.exe", *words])) == ["prog.exe", *words]


@pytest.mark.parametrize(
    "words", [["%OS%", "x"], ['"', "x"], ["prog", "a\nb"], ["prog", "a\r"], ["pr\nog", "x"], ["prog", "\0"]]
)
def test_words_that_cmd_cannot_be_given_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="can't take these words") as caught:
        systems.command_line(WINDOWS, words)
    assert "single word" in caught.value.cure
    assert systems.command_line(LINUX, words)


def test_ordinary_words_are_written_as_before() -> None:
    words = ["powershell.exe", "-NoProfile", "-Command", "Restart-Service -Name kubelet -Force"]
    line = 'powershell.exe -NoProfile -Command "Restart-Service -Name kubelet -Force"'
    assert systems.command_line(WINDOWS, words) == line
    assert systems.command_line(WINDOWS, ["echo %OS% & ver"]) == "echo %OS% & ver"  # a line for the shell


@pytest.mark.parametrize("line", systems.ways(WINDOWS).signs.values())
def test_commands_for_the_agent_need_no_quotation_marks(line: str) -> None:
    assert '"' not in line
    assert systems.ways(LINUX).signs == {}


def test_windows_searches_its_drives() -> None:
    assert systems.ways(WINDOWS).place(Shell("E:\r\nF:\r\n")) == "E:"
    assert systems.ways(WINDOWS).place(Shell()) == ""


@pytest.mark.parametrize("prints", ["E:", ""])
def test_windows_notices_a_cd_when_it_shows_the_file(prints: str) -> None:
    shell = Shell(prints)
    assert systems.ways(WINDOWS).sees(shell, "push/kubelet.exe", there=True) == bool(prints)
    assert systems.ways(WINDOWS).sees(shell, "push/kubelet.exe", there=False) != bool(prints)
    assert "exist %d:\\push\\kubelet.exe echo" in shell.asked[0][0][0]


def test_linux_is_not_asked_for_a_cd() -> None:
    shell = Shell()
    for there in (True, False):
        assert systems.ways(LINUX).sees(shell, "push/kubelet", there=there)
    assert not shell.asked


def test_only_windows_loses_a_script() -> None:
    for code in (-196608, 0xFFFD0000):
        assert systems.ways(WINDOWS).is_missing(code)
        assert not systems.ways(LINUX).is_missing(code)
    assert not systems.ways(WINDOWS).is_missing(1)
