"""What the stand-in shows: the screen (for VNC), the serial port, and Panther's logs."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path

from winlab_standin.guest.place import PORT

SCREEN = Path("/dev/tty0")
HONEST = "winlab stand-in for Windows Server: this is not Windows"
ACTIVITY = "setupact.log"
ERRORS = "setuperr.log"


def write_port(text: str) -> None:
    """Write to the first serial port; without one, nothing happens, as in Windows."""
    try:
        with PORT.open("wb", buffering=0) as port:
            port.write(text.encode("utf-8", "replace"))
    except OSError:
        return


def draw(title: str, lines: list[str], path: Path = SCREEN) -> None:
    """Show a page: a title, lines, and at the foot that this is not Windows."""
    body = "\r\n".join(f"    {line}" for line in lines)
    page = f"\033[44;97m\033[2J\033[H\033[?25l\r\n    {title}\r\n\r\n{body}\r\n\r\n\r\n    ({HONEST})\r\n"
    try:
        with path.open("wb", buffering=0) as screen:
            screen.write(page.encode("utf-8", "replace"))
    except OSError:
        return  # no screen, no page


def bug() -> None:
    """Report the exception that is being handled on the serial port: it is a bug of the stand-in."""
    write_port("".join(f"setup: bug: {line}\r\n" for line in traceback.format_exc().splitlines()))


class Log:
    """Reports what Setup does: on the serial port, on the screen, in Panther's logs."""

    def __init__(self, folder: Path, title: str = "Windows Setup", screen: Path = SCREEN) -> None:
        self.folder = folder
        self.title = title
        self.screen = screen
        self.lines: list[str] = []
        self.told = False  # whether a command of the answer file copies the log of errors to the serial port
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, text: str) -> None:
        """A step."""
        self.lines = [*self.lines, text][-14:]
        write_port(f"setup: {text}\r\n")
        self.write("Info", text)
        draw(self.title, self.lines, self.screen)

    def write(self, level: str, text: str) -> None:
        """Write only into the logs."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        for name in (ACTIVITY, ERRORS) if level == "Error" else (ACTIVITY,):
            with (self.folder / name).open("a", encoding="utf-8", newline="") as file:
                for line in text.splitlines() or [""]:
                    file.write(f"{stamp}, {level:<21} IBS    {line}\r\n")

    def refuse(self, message: str, detail: str) -> None:
        """Setup's dialog: what Windows would show, with the detail that Windows writes only to its log."""
        self.write("Error", f"{message}\n{detail}")
        os.sync()  # users read the log from the disk of a machine that has stopped
        if self.told:
            write_port((self.folder / ERRORS).read_text(encoding="utf-8"))
        words, rows = message.split(), [""]
        for word in words:
            if len(rows[-1]) + len(word) > 70:
                rows.append("")
            rows[-1] = f"{rows[-1]} {word}".strip()
        box = [f"+{'-' * 74}+", *[f"|  {row:<70}  |" for row in rows], f"|{'[ OK ]':^74}|", f"+{'-' * 74}+"]
        draw(self.title, [*box, "", f"({detail})"], self.screen)
