"""The stand-in's engine that stays (guest/resident.py): a script sees and leaves the same as in its own process."""

from __future__ import annotations

import base64
import os
import signal
import subprocess  # noqa: TID251 - a caller that is killed
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from winlab_standin.guest import resident as residents
from winlab_standin.guest.base import converse
from winlab_standin.guest.resident import Resident
from winlab_standin.guest.shell import Cancelled

LIMIT = 120.0  # seconds; only what hangs exceeds it
UNICODE = "Gr\u00fc\u00dfe \u4e2d\u6587 \U0001f600"


def until(happens: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


@dataclass
class Caller:
    """Asks for scripts, of the resident engine or of processes of their own."""

    engine: Path
    resident: Resident

    def ask(
        self, *words: str, given: str = "", own: bool = False, check: Callable[[], None] = lambda: None, **more: str
    ) -> tuple[int | None, str, str]:
        out: list[str] = []
        err: list[str] = []
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "NO_COLOR": "1", **more}
        run = converse if own else self.resident.converse
        words = ("-NoProfile", "-NonInteractive", *words)
        code = run([self.engine, *words], lambda: given, out.append, err.append, check, env=env)
        return code, "".join(out), "".join(err)

    def run(self, command: str, **more: str) -> str:
        """The output of a command without errors."""
        code, out, err = self.ask("-Command", command, **more)
        assert (code, err) == (0, ""), out
        return out.removesuffix("\r\n")

    def process(self) -> str:
        return self.run("$PID")


@pytest.fixture(scope="module")
def shared(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    made = Caller(engine, Resident(tmp_path_factory.mktemp("resident")))
    yield made
    made.resident.end()


@pytest.fixture
def caller(engine: Path, tmp_path: Path) -> Iterator[Caller]:
    """A caller whose engine fails."""
    made = Caller(engine, Resident(tmp_path / "resident"))
    yield made
    made.resident.end()


def gone(process: str) -> bool:
    return not Path(f"/proc/{process}/exe").exists()


ENCODED = base64.b64encode("'x'; exit 7".encode("utf-16-le")).decode()
FILES = {
    "code.ps1": "param($Add = 0)\nfunction f { exit 4 }\nif ($Add) { exit (1 + $Add) }\nf\n",
    "throws.ps1": "'before'\nthrow 'it fails'\n",
    "lasts.ps1": "/bin/sh -c 'exit 5'\n$LASTEXITCODE\n",
    "error.ps1": "Write-Error 'no end'\n$PSScriptRoot | Split-Path -Leaf\n",
    "input.ps1": "$text = @($input); $text.Count; $text[-1].Length\n",
    "all.ps1": "[Console]::InputEncoding = [System.Text.Encoding]::UTF8\n[Console]::In.ReadToEnd().Length\n",
}
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "exit": (("-Command", "1; exit 3; 2"), ""),
    "throw": (("-Command", "1; throw 'no'; 2"), ""),
    "last fails": (("-Command", "Get-Item -Path '/nosuch'"), ""),
    "last program fails": (("-Command", "/bin/sh -c 'exit 6'"), ""),
    "syntax": (("-Command", "if ("), ""),
    "encoded": (("-EncodedCommand", ENCODED), ""),
    "ends the process": (("-Command", "1; [Environment]::Exit(9)"), ""),
    "nothing to run": ((), ""),
    "code": (("-File", "code.ps1"), ""),
    "argument": (("-File", "code.ps1", "-Add", "20"), ""),
    "throws": (("-File", "throws.ps1"), ""),
    "lasts": (("-File", "lasts.ps1"), ""),
    "error": (("-File", "error.ps1"), ""),
    "no file": (("-File", "nosuch.ps1"), ""),
    "unicode": (("-Command", f"'{UNICODE}'; [Console]::Error.WriteLine('{UNICODE}'); $input"), f"{UNICODE}\n"),
    "large input": (("-File", "input.ps1"), f"{'x' * 70}\n" * 9000 + UNICODE),
    "large text": (("-File", "all.ps1"), UNICODE * 90000),
    "input that is not read": (("-Command", "1"), "x" * 900000),
    "streams": (
        ("-Command", "/bin/cat; /bin/sh -c 'printf a; printf b >&2'; Write-Warning 'w'; $host.UI.Write('c')"),
        "i\r\nj",
    ),
    "much": (("-Command", '1..9000 | ForEach-Object { "line $_" }; [Console]::Out.Write("a`rb`r`nc")'), ""),
    "environment": (
        ("-Command", 'Get-ChildItem env: | Sort-Object Name | ForEach-Object { "$($_.Name)=$($_.Value)" }'),
        "",
    ),
    "place": (("-Command", "(Get-Location).Path; [Environment]::CurrentDirectory; $args.Count; $Error.Count"), ""),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_it_answers_like_a_separate_process(
    shared: Caller, home: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(home)
    words, given = CASES[case]
    wanted = shared.ask(*words, given=given, own=True, EMPTY="", NAME=UNICODE)
    assert shared.ask(*words, given=given, EMPTY="", NAME=UNICODE) == wanted


def test_nothing_of_an_earlier_script_remains(shared: Caller) -> None:
    seen = "\n".join(
        [
            "Get-Variable -Name mine -Scope Global -ErrorAction Ignore; Get-PSDrive -Name mine -ErrorAction Ignore",
            "Get-Command -Name Get-Mine -ErrorAction Ignore; Get-Alias -Name mine -ErrorAction Ignore",
            "[bool]('Mine' -as [type]); $ErrorActionPreference; $LASTEXITCODE; $Error.Count; $env:MINE; $env:PATH",
            "(Get-Location).Path; [Environment]::CurrentDirectory; [Console]::OutputEncoding.WebName",
            "[Console]::InputEncoding.WebName; try { Read-Host } catch { 'silent' }",
        ]
    )
    wanted = shared.ask("-Command", seen, own=True)
    process = shared.process()
    leaves = [
        "$global:mine = 1; function global:Get-Mine { 2 }; Set-Alias -Name mine -Value Get-Item -Scope Global",
        "New-PSDrive -Name mine -PSProvider FileSystem -Root /usr -Scope Global; class Mine { }",
        "$global:ErrorActionPreference = 'Stop'; /bin/sh -c 'exit 3'; $env:MINE = 1; $env:PATH = '/nosuch'",
        "Set-Location /usr; [Environment]::CurrentDirectory = '/usr'",
        "[Console]::OutputEncoding = [Console]::InputEncoding = [System.Text.Encoding]::Unicode",
        "[Console]::SetOut((New-Object System.IO.StringWriter))",
        "[Console]::SetIn((New-Object System.IO.StringReader 'x')); Start-Transcript -Path /dev/null",
        "throw 'and ends badly'",
    ]
    code, _, _ = shared.ask("-Command", "\n".join(leaves))
    assert code == 1
    assert shared.ask("-Command", seen) == wanted
    assert shared.process() == process


def test_files_that_a_script_left_open_are_closed(shared: Caller, tmp_path: Path) -> None:
    """Its files, and the mutex that it holds: the next one finds that its owner has ended."""
    take = (
        "$m = New-Object System.Threading.Mutex $false, 'Global\\winlab-test'\ntry { $m.WaitOne(0) } catch { 'left' }"
    )
    shared.run(f"$f = [System.IO.File]::Create('{tmp_path}/open'); {take}")
    assert shared.ask("-Command", take)[1].strip() in ("left", "True")
    assert (
        shared.run(f"@(Get-ChildItem /proc/$PID/fd | Where-Object {{ $_.Target -like '*{tmp_path.name}/open' }}).Count")
        == "0"
    )


def test_background_work_of_a_script_ends(caller: Caller) -> None:
    process = caller.process()
    assert caller.run("Start-Job { Start-Sleep -Seconds 600 } | Out-Null; 1") == "1"
    until(lambda: gone(process))
    assert caller.process() != process


def test_a_second_script_is_not_kept_waiting(caller: Caller) -> None:
    begun, go = threading.Event(), threading.Event()
    told: list[int | None] = []
    words = [caller.engine, "-Command", "'begun'; [Console]::In.ReadLine()"]
    env = {"PATH": os.environ["PATH"]}

    def read() -> str:
        go.wait()
        return "x\n"

    def first() -> None:
        told.append(caller.resident.converse(words, read, lambda _: begun.set(), print, lambda: None, env=env))

    work = threading.Thread(target=first)
    work.start()
    try:
        assert begun.wait(LIMIT)
        assert caller.ask("-Command", "1") == (None, "", "")
    finally:
        go.set()
        work.join(LIMIT)
    assert told == [0]
    assert caller.run("2") == "2"


def test_a_script_that_is_cancelled(caller: Caller) -> None:
    process = caller.process()

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        caller.ask("-Command", "/bin/sleep 600", check=cancel)
    until(lambda: gone(process))
    assert caller.process() != process


def test_a_caller_that_is_killed(caller: Caller) -> None:
    process = caller.process()
    program = (
        "import sys; from pathlib import Path; from winlab_standin.guest.resident import Resident; "
        "told = lambda _: print('begun', flush=True); "
        "Resident(Path(sys.argv[1])).converse(sys.argv[2:], str, told, print, lambda: 0, env={})"
    )
    words = [caller.engine, "-Command", "'begun'; Start-Sleep -Seconds 600"]
    with subprocess.Popen(
        [sys.executable, "-c", program, caller.resident.folder, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        other.kill()
    until(lambda: gone(process))
    assert caller.process() != process


def test_an_engine_that_crashes(caller: Caller) -> None:
    code, out, _ = caller.ask("-Command", "'before'; /bin/sh -c \"kill -KILL $PID\"; Start-Sleep -Seconds 600")
    assert (code, out) == (-signal.SIGKILL, "before\r\n")
    process = caller.process()
    os.kill(int(process), signal.SIGKILL)  # between two scripts
    assert caller.process() != process


def test_an_engine_that_is_idle_ends(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "IDLE", 1)
    process = caller.process()
    until(lambda: gone(process))
    assert caller.process() != process


def test_an_engine_that_does_not_start(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(residents, "write_port", told.append)
    caller.engine = Path("/bin/false")
    assert caller.ask("-Command", "1") == (None, "", "")
    assert "does not start" in told[0]


def test_the_shutdown_ends_it(caller: Caller) -> None:
    process = caller.process()
    Resident(caller.resident.folder).end()
    until(lambda: gone(process))
    Resident(caller.resident.folder).end()
