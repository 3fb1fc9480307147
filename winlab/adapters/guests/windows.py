"""How Windows nodes run winlab's scripts, which are on the CD in the payload drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from winlab import run
from winlab.adapters.guests.base import Execute
from winlab.errors import UsageError

DRIVES = "D E F G H I J"
NO_FILE = 0xFFFD0000  # the exit code of powershell.exe when the file of -File does not exist
SIGNS = {
    "network": "ipconfig.exe /all",
    "ports": "netstat.exe -ano",
    "winrm": "sc.exe query WinRM",
    "sshd": "sc.exe query sshd",
    "firewall": "netsh.exe advfirewall show allprofiles",
    "bootstrap": r"type C:\winlab\bootstrap.log",
}
CMD = frozenset('&|<>^()%!"')  # what cmd.exe takes for its own
FLAGS = ("-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass")


class WindowsWays:
    """See :class:`winlab.adapters.guests.base.Ways`."""

    def line(self, words: Sequence[str]) -> str:
        """A line that cmd.exe takes for one command, and that Windows programs split into these words.

        :raises UsageError: a word can't be written in such a line.
        """
        program, *rest = words
        if set(program) & set('"%') or any(set(word) & set("\r\n\0") for word in words):
            raise UsageError(
                "cmd.exe can't take these words.",
                why="None may have a line end, and the first one, the program, no quotation mark and no percent sign.",
                cure="Give the whole command as a single word: it is run as a line of cmd.exe.",
            )
        # cmd.exe looks for a program in real quotation marks only
        first = f'"{program}"' if set(program) & (CMD | set(" \t,;=@")) or not program else program
        line = " ".join([first, *map(_word, rest)])
        # with /c, cmd.exe may remove the first quotation mark of a line that begins with one, and the last one
        return f"@{line}" if line.startswith('"') else line

    def by_ssh(self, line: str) -> str:
        """OpenSSH's default shell is cmd.exe, and its console has the country's encoding, whereas WinRM gives it UTF-8.

        ``ver`` clears the exit code of a chcp without a console.
        """
        return f"chcp 65001 >nul 2>&1 || ver >nul & {line}"

    def understands(self, execute: Execute) -> bool:
        """Users may make PowerShell the default shell, which has a different syntax."""
        return execute(["echo %OS%"]).strip() == "Windows_NT"

    @property
    def signs(self) -> Mapping[str, str]:
        """See the interface. Names and states of services, ports and adapters; nothing secret."""
        return SIGNS

    def place(self, execute: Execute) -> str:
        """The drive of the payload CD: ``D:``."""
        return _drive(execute, "payload.json")

    def command(self, place: str, script: str) -> list[str]:
        """Each script is a file on the CD."""
        return ["powershell.exe", *FLAGS, "-File", f"{place}\\scripts\\{script}.ps1"]

    def is_missing(self, code: int) -> bool:
        """Whether PowerShell did not find the file. The code may come as a negative number."""
        return code & 0xFFFFFFFF == NO_FILE

    def sees(self, execute: Execute, file: str, *, there: bool) -> bool:
        """Look for the file: Windows keeps showing the old CD for some seconds."""
        return bool(_drive(execute, file)) == there

    @property
    def shut_down(self) -> str:
        """Programs that don't end are closed (``/f``). The power button does less: Windows Server may ignore it
        while no one is logged on (policy "Shutdown: Allow system to be shut down without having to log on").
        """
        return "shutdown.exe /s /f /t 0"

    @property
    def clock(self) -> str:
        """See the interface."""
        return script_line("[DateTimeOffset]::UtcNow.ToUnixTimeMilliseconds()")

    @property
    def quick_clock(self) -> bool:
        """PowerShell takes seconds to start."""
        return False

    def step_clock(self, milliseconds: int) -> str:
        """Without a time server: a lab may reach none, as ``w32tm /resync`` would need."""
        return script_line(f"Set-Date -Adjust ([TimeSpan]::FromMilliseconds({milliseconds}))")


def _word(word: str) -> str:
    """A word for Windows' CommandLineToArgvW, through which cmd.exe passes without taking anything of it for its own.

    All quotation marks have carets, so cmd.exe sees none, and every other caret counts. It replaces variables before it
    looks at carets; a name that begins and ends with one is not a variable's, so its percent signs stay.
    """
    quoted, made, before = run.windows_line([word]), "", ""
    if not set(word) & CMD:
        return quoted
    for letter in quoted:
        made += f"^{letter}" if letter in CMD or before == "%" else letter
        before = letter
    return made


def script_line(text: str) -> str:
    """The command line by which cmd.exe has PowerShell run a script that has no '"' and no percent sign."""
    return f'powershell.exe {" ".join(FLAGS)} -Command "{text}"'


def _drive(execute: Execute, file: str) -> str:
    """The first drive that has a file; empty if none has."""
    path = file.replace("/", "\\")
    drives = execute([f"cmd.exe /c for %d in ({DRIVES}) do @if exist %d:\\{path} echo %d:"]).split()
    return drives[0] if drives else ""
