"""The stand-in's cmd.exe: exit codes, streams, redirection, and that it refuses what it does not simulate."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from winlab import data
from winlab_standin.guest import batch, bootstrap, cmdline, netcommands
from winlab_standin.guest.base import Result
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives, is_there
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.shell import Shell, Streams, interactive
from winlab_standin.guest.world import Adapter, World

UNKNOWN = "'{}' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n"


@dataclass
class Fake(World):
    port: list[str] = field(default_factory=list)
    wishes: list[tuple[str, float]] = field(default_factory=list)
    settled: int = 0
    user: bool = False
    time: float = 1_000_000.25

    def logged_on(self) -> bool:
        return self.user

    def log_off(self) -> None:
        self.user = False

    def settle(self) -> None:
        self.settled += 1

    def clock(self) -> float:
        return self.time

    def set_clock(self, seconds: float) -> None:
        self.time = seconds

    def name(self) -> str:
        return "W1"

    def serial(self, text: str) -> None:
        self.port.append(text)

    def adapters(self) -> list[Adapter]:
        return [
            Adapter("eth0", "52:54:00:00:00:01", 1442, (("10.7.0.5", 24),), {"domain": "lab", "router": "10.7.0.1"})
        ]

    def resolver(self) -> tuple[list[str], list[str]]:
        return ["10.7.0.1"], ["lab"]

    def power(self, action: str, delay: float) -> None:
        self.wishes.append((action, delay))

    def services(self) -> dict[str, bool]:
        return {"WinRM": True, "sshd": False}


@pytest.fixture
def world(tmp_path: Path) -> Fake:
    drive = tmp_path / "c"
    (drive / "Users/Administrator").mkdir(parents=True)
    (drive / "Windows").mkdir()
    return Fake(Drives({"C": drive}), Registry(tmp_path / "registry.json"))


def run(world: World, line: str, stdin: str = "") -> tuple[int, str, str]:
    out: list[str] = []
    err: list[str] = []
    code = Shell(world, COMMANDS).run(line, Streams(out.append, err.append, lambda: stdin))
    return code, "".join(out), "".join(err)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("echo hi", (0, "hi\r\n", "")),
        ("echo.", (0, "\r\n", "")),
        ("hostname", (0, "W1\r\n", "")),
        ("HOSTNAME.EXE", (0, "W1\r\n", "")),
        ("whoami", (0, "w1\\administrator\r\n", "")),
        ("ver", (0, "\r\nMicrosoft Windows [Version 10.0.20348.2762]\r\n", "")),
        ("nosuch", (1, "", UNKNOWN.format("nosuch"))),
        ("nosuch || hostname", (0, "W1\r\n", UNKNOWN.format("nosuch"))),
        ("nosuch && echo bar", (1, "", UNKNOWN.format("nosuch"))),
        ("echo a & echo b", (0, "a \r\nb\r\n", "")),
        ("echo oops 1>&2", (0, "", "oops \r\n")),
        ("nosuch 2>&1", (1, UNKNOWN.format("nosuch"), "")),
        ("nosuch 2>nul", (1, "", "")),
        ("exit 7", (7, "", "")),
        ("exit /b 3", (3, "", "")),
        ('cmd /c "exit 3"', (3, "", "")),
        ("cmd.exe /c nosuch", (1, "", UNKNOWN.format("nosuch"))),
        ("echo %COMPUTERNAME% %NOPE% 100%", (0, "W1 %NOPE% 100%\r\n", "")),
        ('echo "a & b" ^& c', (0, '"a & b" & c\r\n', "")),
        ("if exist C:\\WINDOWS echo yes", (0, "yes\r\n", "")),
        ("if not exist C:\\nope (echo no) else echo yes", (0, "no\r\n", "")),
        ("if exist C:\\nope (echo no) else echo yes", (0, "yes\r\n", "")),
        ('if /i "A"=="a" echo same', (0, "same\r\n", "")),
        ("echo one two | findstr TWO", (1, "", "")),
        ("echo one two | findstr /i TWO", (0, "one two \r\n", "")),
        ("cd C:\\nope", (1, "", "The system cannot find the path specified.\r\n")),
        ("cd /d C:\\Windows & cd", (0, "C:\\Windows\r\n", "")),
        ("type C:\\nope", (1, "", "The system cannot find the file specified.\r\n")),
        ("echo x>C:\\no\\file", (1, "", "The system cannot find the path specified.\r\n")),
        ("& echo", (1, "", "& was unexpected at this time.\r\n")),
        ("(echo a", (1, "", "The syntax of the command is incorrect.\r\n")),
    ],
)
def test_command_lines(world: Fake, line: str, expected: tuple[int, str, str]) -> None:
    assert run(world, line) == expected


def test_redirection_to_files(world: Fake) -> None:
    run(world, "echo one>x.txt& echo two>>X.TXT")
    assert run(world, "type x.txt") == (0, "one\r\ntwo\r\n", "")
    run(world, "(echo a & echo b) > C:\\y & exit 0")
    assert (world.drives.letters["C"] / "y").read_bytes() == b"a \r\nb\r\n"
    assert run(world, "findstr two < x.txt")[:2] == (0, "two\r\n")


def test_output_of_a_command_is_on_the_disk_when_it_ends(world: Fake) -> None:
    run(world, "echo x>C:\\a")
    run(world, "exit 1")
    assert world.settled == 2


def test_a_digit_before_the_sign_is_a_handle_only_alone(world: Fake) -> None:
    run(world, "echo node1>n.txt")
    assert run(world, "type n.txt")[1] == "node1\r\n"


def test_serial_port(world: Fake) -> None:
    shell = Shell(world, COMMANDS)
    streams = Streams(lambda _: None, lambda _: None)
    assert shell.spawn("cmd.exe /c echo winlab: phase=specialize>COM1", streams) == 0
    assert world.port == ["winlab: phase=specialize\r\n"]


def test_answer_file_commands_need_a_program(world: Fake) -> None:
    said: list[str] = []
    assert Shell(world, COMMANDS).spawn("echo hi", Streams(said.append, said.append)) == 2
    assert said == ["The system cannot find the file specified. (0x80070002)\r\n"]


def test_registry(world: Fake) -> None:
    key = r"HKLM\SOFTWARE\Policies\Microsoft\Windows NT\x"
    assert run(world, f'reg.exe add "{key}" /v Category /t REG_DWORD /d 1 /f')[0] == 0
    code, out, _ = run(world, f'reg query "{key.lower()}" /v category')
    assert code == 0
    assert "Category    REG_DWORD    0x1" in out
    assert run(world, r"reg query HKLM\SOFTWARE\nothing")[0] == 1
    assert run(world, r"reg add NOROOT\x /f")[0] == 1
    assert run(world, f'reg add "{key}" /v a /t REG_WORD /d 1 /f')[0] == 1
    assert run(world, f'reg delete "{key}" /f')[0] == 0
    assert run(world, f'reg query "{key}"')[0] == 1


def test_ipconfig(world: Fake) -> None:
    code, out, _ = run(world, "ipconfig /all")
    assert code == 0
    assert re.search(r"IPv4 Address[ .]+: 10\.7\.0\.5\(Preferred\)", out)
    assert "52-54-00-00-00-01" in out
    assert "255.255.255.0" in out
    assert run(world, "ipconfig /renew")[0] == 1


def test_mtu_is_shown(world: Fake) -> None:
    assert "  1442  " in run(world, "netsh interface ipv4 show subinterfaces")[1]
    assert run(world, "netsh wlan show interfaces")[0] == 1


def answer_of(text: str, error: str = "", code: int = 0) -> Result:
    return Result(code, text, error, 0.1)


def test_ping(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def fake(args: list[str], **_: object) -> Result:
        given.append(args)
        return answer_of("40 bytes from 10.7.0.9: icmp_seq=1 ttl=63 time=1.70 ms\n")

    monkeypatch.setattr(netcommands, "run", fake)
    monkeypatch.setattr(netcommands, "address", lambda name: "10.7.0.9" if name == "c1" else None)
    code, out, _ = run(world, "ping -n 1 -f -l 1414 c1")
    assert code == 0
    assert "Pinging c1 [10.7.0.9] with 1414 bytes of data:" in out
    assert "Reply from 10.7.0.9: bytes=1414 time=1ms TTL=63" in out
    assert "Lost = 0 (0% loss)" in out
    assert given[0][-3:] == ["-M", "do", "10.7.0.9"]
    code, out, _ = run(world, "ping nosuch")
    assert code == 1
    assert "could not find host nosuch" in out


def test_ping_that_fails(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netcommands, "address", lambda name: name)
    monkeypatch.setattr(netcommands, "run", lambda *_, **__: answer_of("", "ping: local error: message too long", 1))
    assert "DF set" in run(world, "ping -n 1 -f -l 2000 10.7.0.9")[1]
    monkeypatch.setattr(netcommands, "run", lambda *_, **__: answer_of("", "", 1))
    code, out, _ = run(world, "ping -n 1 10.7.0.9")
    assert code == 1
    assert "Request timed out." in out
    assert "(100% loss)" in out


def test_nslookup(world: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fake(name: str, server: str, timeout: float = 3.0) -> list[str] | None:
        asked.append(f"{name}@{server}")
        return ["10.7.0.9"] if name == "c1.lab" else None

    monkeypatch.setattr(netcommands, "query", fake)
    assert "Name:    c1.lab\r\nAddress:  10.7.0.9" in run(world, "nslookup c1")[1]
    assert asked == ["c1.lab@10.7.0.1"]
    assert run(world, "nslookup c9")[0] == 1


def test_dns_answer() -> None:
    question = b"\x02c1\x03lab\0\0\x01\0\x01"
    record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\x07\0\x09"
    assert netcommands.answers(b"WL\x81\x80\0\x01\0\x01\0\0\0\0" + question + record) == ["10.7.0.9"]
    assert netcommands.answers(b"WL\x81\x83\0\x01\0\0\0\0\0\0" + question) is None


@pytest.mark.parametrize(
    ("line", "wish"), [("shutdown /r /t 0", ("reboot", 1.0)), ("shutdown -s -t 5", ("poweroff", 5.0))]
)
def test_shutdown(world: Fake, line: str, wish: tuple[str, float]) -> None:
    assert run(world, line)[0] == 0
    assert world.wishes == [wish]


def test_a_session_on_the_screen_prevents_a_restart(world: Fake) -> None:
    world.user = True
    code, _, err = run(world, "shutdown /r /t 0")
    assert (code, world.wishes) == (1191, [])
    assert "there are other users logged on to the computer.(1191)" in err
    assert run(world, "shutdown /r /f /t 0")[0] == run(world, "shutdown /r /t 5")[0] == 0
    assert run(world, "logoff")[0] == 0
    assert run(world, "shutdown /r /t 0")[0] == 0
    assert world.wishes == [("reboot", 1.0), ("reboot", 5.0), ("reboot", 1.0)]


def test_the_clock_is_shown_and_set(world: Fake) -> None:
    """As winlab/adapters/guests/windows.py asks for it."""
    flags = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -Command"
    tell = f'{flags} "[DateTimeOffset]::UtcNow.ToUnixTimeMilliseconds()"'
    assert run(world, tell) == (0, "1000000250\r\n", "")
    code, said, _ = run(world, f'{flags} "Set-Date -Adjust ([TimeSpan]::FromMilliseconds(-86400500))"')
    assert (code, said) == (0, "\r\nSunday, January 11, 1970 13:46:39\r\n\r\n")
    assert run(world, tell)[1] == "913599750\r\n"


def test_shutdown_unknown(world: Fake) -> None:
    assert run(world, "shutdown /i")[0] == 1
    assert world.wishes == []


def test_powershell_is_refused(world: Fake) -> None:
    script = base64.b64encode("Get-Service | Stop-Service".encode("utf-16-le")).decode()
    for line in ("powershell Get-Process", f"powershell -encodedcommand {script}", "powershell"):
        code, out, err = run(world, line)
        assert (code, out) == (1, "")
        assert "not available in this stand-in" in err


def test_known_powershell(world: Fake) -> None:
    assert run(world, 'powershell -NoProfile -Command "$PSVersionTable.PSVersion.ToString()"')[:2] == (
        0,
        "5.1.20348.2762\r\n",
    )


def test_another_bootstrap_is_refused(world: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"bootstrap_sha256": hashlib.sha256(b"right").hexdigest()}))
    monkeypatch.setattr(bootstrap, "KNOWN", known)
    disc = tmp_path / "e" / "winlab"
    disc.mkdir(parents=True)
    (disc / "bootstrap.ps1").write_bytes(b"wrong")
    world.drives.letters["E"] = tmp_path / "e"
    line = (
        'powershell.exe -NoProfile -ExecutionPolicy Bypass -Command "Get-PSDrive -PSProvider FileSystem | '
        "ForEach-Object { $p = Join-Path $_.Root 'winlab\\bootstrap.ps1'; if (Test-Path $p) { & $p } }\""
    )
    said: list[str] = []
    assert Shell(world, COMMANDS).spawn(line, Streams(said.append, said.append)) == 1
    assert "not the script" in "".join(said)


def in_windows_pe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pe: bytes) -> Fake:
    """Windows PE with winlab's CD as E:."""
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"pe_sha256": hashlib.sha256(b"right").hexdigest()}))
    monkeypatch.setattr(batch.play, "__defaults__", (known,))
    disc = tmp_path / "e" / "winlab"
    disc.mkdir(parents=True)
    (disc / "pe.cmd").write_bytes(pe)
    return Fake(Drives({"X": tmp_path, "E": tmp_path / "e"}), Registry(tmp_path / "registry"), has_com1=False)


@pytest.mark.parametrize(("pe", "told"), [(b"right", ["winlab: phase=windowsPE\r\n"]), (b"wrong", [])])
def test_windows_pe_s_port_has_no_name_until_pe_cmd_gives_it_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pe: bytes, told: list[str]
) -> None:
    """And the command of the answer file succeeds whatever comes of it: Setup of 2025 ends on any other exit code."""
    world = in_windows_pe(tmp_path, monkeypatch, pe)
    said: list[str] = []
    heard = Streams(said.append, said.append)
    assert Shell(world, COMMANDS, cwd="X:\\").spawn("cmd.exe /c echo winlab: phase=windowsPE>COM1", heard) == 1
    text = data.texts("unattend")["windows/Autounattend.xml.j2"]
    command = html.unescape(re.findall(r"<Path>(cmd.exe .*pe\.cmd.*)</Path>", text)[0])
    assert Shell(world, COMMANDS, cwd="X:\\").spawn(command, heard) == 0
    assert world.port == told
    assert world.watches is bool(told)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("set /a x=1+1", 1, "knows no /a"),
        ("set /p x=?", 1, "knows no /p"),
        ("echo %COMPUTERNAME:~0,1%", 1, "does not know %COMPUTERNAME:~0,1%"),
        ("echo %DATE%", 1, "does not know %DATE%"),
        ("echo abc| findstr a.c", 2, "regular expressions"),
        ("echo abc| findstr ^^a", 2, "regular expressions"),
        ("echo abc| findstr /r abc", 2, "Bad command line"),
        ("echo abc| find abc", 2, "Parameter format"),
        ('echo abc| find /c "abc"', 2, "Parameter format"),
        (r"reg query HKLM\SOFTWARE /s", 1, "knows no /s"),
        (r"reg delete HKLM\SOFTWARE /va /f", 1, "knows no /va"),
        (r"reg add HKLM\k /v n /t REG_DWORD /d 0x100000000 /f", 1, "Invalid syntax"),
        (r"reg add HKLM\k /v n /t REG_DWORD /d -1 /f", 1, "Invalid syntax"),
        (r"reg add HKLM\k /v n /t REG_BINARY /d xyz /f", 1, "Invalid syntax"),
        (r"reg add HKLM\k /d lost /f", 1, "Invalid syntax"),
        ("mkdir /p C:\\d", 1, "syntax"),
        ("nslookup -type=mx c1", 1, "knows no options"),
        ("echo " + "x" * 8200, 1, "The command line is too long.\r\n"),
        ("cmd /c " + "echo x&" * 1200, 1, "The command line is too long.\r\n"),
    ],
)
def test_unknown_commands_are_refused(world: Fake, line: str, code: int, said: str) -> None:
    got, out, err = run(world, line)
    assert (got, out) == (code, "")
    assert said in err


def test_a_line_of_8191_characters_is_not_too_long(world: Fake) -> None:
    line = "echo " + "x" * 8186
    assert run(world, line) == (0, line[5:] + "\r\n", "")
    assert run(world, "echo " + "%WINDIR%" * 1000)[2] == "The command line is too long.\r\n"


def test_findstr_matches_plain_text(world: Fake) -> None:
    assert run(world, "echo a.c| findstr /l a.c")[0] == 0
    assert run(world, "echo abc| findstr /l a.c")[0] == 1
    assert run(world, 'echo a b| findstr /c:"a b"')[0] == 0
    assert run(world, "echo abc| findstr /x ab")[0] == 1
    assert run(world, 'echo a x b| find "a b"')[0] == 1
    assert run(world, 'echo x a b| find "a b"')[0] == 0


def test_del(world: Fake) -> None:
    drive = world.drives.letters["C"]
    for name in ("a.txt", "b.txt"):
        (drive / name).touch()
    code, _, err = run(world, "del /f/q C:\\*.txt")
    assert (code, "single files only" in err) == (1, True)
    assert run(world, "del /s /q C:\\a.txt")[0] == 1
    assert (drive / "a.txt").exists()
    code, _, err = run(world, "del /q C:\\nope C:\\a.txt C:\\Windows C:\\b.txt")
    assert code == 1
    assert "Could Not Find C:\\nope" in err
    assert not (drive / "a.txt").exists()
    assert not (drive / "b.txt").exists()
    assert run(world, "del C:\\nope")[0] == 0


def test_a_value_is_not_overwritten_without_the_flag(world: Fake) -> None:
    add = r"reg add HKLM\k /v n /t REG_DWORD /d"
    assert run(world, f"{add} 010")[0] == 0
    code, _, err = run(world, f"{add} 2")
    assert code == 1
    assert "exists" in err
    assert world.registry.get(r"HKLM\k", "n") == "0xa"
    assert run(world, f"{add} 0xFFFFFFFF /f")[0] == 0
    assert world.registry.get(r"HKLM\k", "n") == "0xffffffff"


def test_interactive(world: Fake) -> None:
    lines = iter(["cd C:\\Windows", "nosuch", "exit 4"])
    out: list[str] = []
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    assert interactive(Shell(world, COMMANDS), Streams(out.append, out.append), ask) == 4
    assert out[0].startswith("Microsoft Windows [Version 10.0.20348.2762]")
    assert prompts[0] == "\r\nC:\\Users\\Administrator>"
    assert prompts[2] == "\r\nC:\\Windows>"


def test_other_commands(world: Fake) -> None:
    run(world, "mkdir C:\\k & echo x>C:\\k\\a.txt & copy C:\\k\\a.txt C:\\k\\b.txt")
    assert run(world, "dir /b C:\\k")[1] == "a.txt\r\nb.txt\r\n"
    assert run(world, "del C:\\k\\a.txt & move C:\\k\\b.txt C:\\k\\c.txt")[0] == 0
    assert run(world, "dir C:\\K")[1].count(".txt") == 1
    assert "WinRM" in run(world, "net start")[1]
    assert run(world, "net user Administrator x")[0] == 1
    assert "RUNNING" in run(world, "sc query winrm")[1]
    assert run(world, "sc query nosuch")[0] == 1060
    assert run(world, "where ping.exe")[0] == 0


@pytest.mark.parametrize(
    ("text", "words"), [('a "b c" d', ["a", "b c", "d"]), (r'x "a\"b"', ["x", 'a"b']), ('""', [""]), ("", [])]
)
def test_words(text: str, words: list[str]) -> None:
    assert cmdline.split(text) == words


@pytest.mark.parametrize(
    ("path", "cwd", "full"),
    [
        ("x", "C:\\a", "C:\\a\\x"),
        ("..\\..\\x", "C:\\a", "C:\\x"),
        ("\\x", "C:\\a", "C:\\x"),
        ("e:x", "C:\\a", "E:\\x"),
        ("C:/a/./b", "E:\\", "C:\\a\\b"),
    ],
)
def test_paths(path: str, cwd: str, full: str) -> None:
    assert Drives().absolute(path, cwd) == full


def test_a_cd_that_was_just_ejected_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Path, **_more: object) -> bool:
        raise OSError(12, "Cannot allocate memory", str(self))

    monkeypatch.setattr(Path, "exists", broken)
    drives = Drives({"D": tmp_path})
    real = drives.real("D:\\payload.json")
    assert real == tmp_path / "payload.json"
    assert not is_there(real)
