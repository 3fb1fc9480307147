"""The commands of cmd.exe and of System32 that the stand-in knows. Each really does its work, or fails."""

from __future__ import annotations

import re
from datetime import datetime

from winlab_standin.guest import (
    cmdline,
    nativecommands,
    netcommands,
    pscommands,
    searchcommands,
    syscommands,
    waycommands,
)
from winlab_standin.guest.paths import is_there
from winlab_standin.guest.shell import Command, Commands, Leave, Shell, Streams

SYNTAX = "The syntax of the command is incorrect.\r\n"
NO_FILE = "The system cannot find the file specified.\r\n"
NO_PATH = "The system cannot find the path specified.\r\n"


def echo(shell: Shell, rest: str, streams: Streams) -> int:
    """``echo TEXT``, ``echo.``."""
    if not rest.strip():
        streams.out("ECHO is on.\r\n")
    elif rest.strip().lower() not in ("on", "off"):
        streams.out(f"{rest[1:]}\r\n")
    return shell.code


def ver(shell: Shell, rest: str, streams: Streams) -> int:
    """``ver``."""
    del rest
    streams.out(f"\r\nMicrosoft Windows [Version {shell.world.windows.version}]\r\n")
    return 0


def set_(shell: Shell, rest: str, streams: Streams) -> int:
    """``set``, ``set NAME``, ``set NAME=VALUE``."""
    if rest.strip().startswith("/"):
        streams.err(f"The stand-in's set knows no {rest.split()[0]}.\r\n")
        return 1
    text = rest.strip().strip('"')
    name, equals, value = text.partition("=")
    if equals:
        for old in [key for key in shell.variables if key.upper() == name.upper()]:
            del shell.variables[old]
        if value:
            shell.variables[name] = value
        return 0
    found = sorted(
        (key, data) for key, data in shell.environment().items() if key.upper().startswith(name.strip().upper())
    )
    found = [item for item in found if item[0] not in ("CD", "ERRORLEVEL")]
    for key, data in found:
        streams.out(f"{key}={data}\r\n")
    if not found:
        streams.err(f"Environment variable {name} not defined\r\n")
        return 1
    return 0


def cd(shell: Shell, rest: str, streams: Streams) -> int:
    """``cd``, ``cd FOLDER``, ``cd /d FOLDER``."""
    text = rest.strip()
    if text.lower().startswith("/d"):
        text = text[2:].strip()
    if not text:
        streams.out(f"{shell.cwd}\r\n")
        return 0
    real = shell.path(text)
    if real is None or not real.is_dir():
        streams.err(NO_PATH if real else "The system cannot find the drive specified.\r\n")
        return 1
    shell.cwd = shell.world.drives.absolute(text, shell.cwd)
    return 0


def dir_(shell: Shell, rest: str, streams: Streams) -> int:
    """``dir [/b] [PATH]``."""
    words = cmdline.split(rest)
    flags = [word.lower() for word in words if word.startswith("/")]
    names = [word for word in words if not word.startswith("/")] or ["."]
    real = shell.path(names[0])
    if set(flags) - {"/b", "/a", "/s"} or "/s" in flags or len(names) > 1:
        streams.err(SYNTAX)
        return 1
    if real is None or not real.exists():
        streams.err("File Not Found\r\n")
        return 1
    items = sorted(real.iterdir(), key=lambda item: item.name.lower()) if real.is_dir() else [real]
    if "/b" in flags:
        for item in items:
            streams.out(f"{item.name}\r\n")
        return 0
    full = shell.world.drives.absolute(names[0], shell.cwd)
    streams.out(f" Volume in drive {full[0]} is Windows\r\n\r\n Directory of {full}\r\n\r\n")
    files, size = 0, 0
    for item in items:
        about = item.stat()
        stamp = datetime.fromtimestamp(about.st_mtime).strftime("%m/%d/%Y  %I:%M %p")
        kind = "<DIR>         " if item.is_dir() else f"{about.st_size:>14,}"
        streams.out(f"{stamp}    {kind} {item.name}\r\n")
        files, size = files + item.is_file(), size + (about.st_size if item.is_file() else 0)
    streams.out(f"{files:>16} File(s) {size:>14,} bytes\r\n")
    return 0


def type_(shell: Shell, rest: str, streams: Streams) -> int:
    """``type FILE...``."""
    words = cmdline.split(rest)
    if not words:
        streams.err(SYNTAX)
        return 1
    for word in words:
        real = shell.path(word)
        if real is None or not real.is_file():
            streams.err(NO_FILE)
            return 1
        streams.out(real.read_bytes().decode("utf-8", errors="replace"))
    return 0


def mkdir(shell: Shell, rest: str, streams: Streams) -> int:
    """``mkdir FOLDER...``."""
    for word in cmdline.split(rest) or [""]:
        real = shell.path(word) if word and not word.startswith("/") else None
        if real is None or real.exists():
            streams.err(f"A subdirectory or file {word} already exists.\r\n" if real else SYNTAX)
            return 1
        real.mkdir(parents=True)
    return 0


def delete(shell: Shell, rest: str, streams: Streams) -> int:
    """``del [/f] [/q] FILE...``: without wildcards."""
    words = cmdline.split(rest)
    names = [word for word in words if not word.startswith("/")]
    switches = [one for word in words if word.startswith("/") for one in re.findall("/[^/]*", word)]
    for switch in switches:
        if switch.lower() not in ("/f", "/q"):
            streams.err(f"The stand-in's del knows no {switch}.\r\n")
            return 1
    if not names:
        streams.err(SYNTAX)
        return 1
    code = 0
    for name in names:
        real = None if re.search("[*?]", name) else shell.path(name)
        if real is not None and real.is_file():
            real.unlink()
        elif real is not None and not real.exists():
            # for del, a missing file is not a failure
            streams.err(f"Could Not Find {shell.world.drives.absolute(name, shell.cwd)}\r\n")
        else:
            streams.err(f"The stand-in's del removes single files only, not {name}\r\n")
            code = 1
    return code


def _copy_move(shell: Shell, rest: str, streams: Streams, move: bool) -> int:
    words = [word for word in cmdline.split(rest) if word.lower() not in ("/y", "/b")]
    if len(words) != 2:
        streams.err(SYNTAX)
        return 1
    source, target = shell.path(words[0]), shell.path(words[1])
    if source is None or not source.is_file() or target is None:
        streams.err(NO_FILE)
        return 1
    place = target / source.name if target.is_dir() else target
    if not place.parent.is_dir():
        streams.err(NO_PATH)
        return 1
    place.write_bytes(source.read_bytes())
    if move:
        source.unlink()
    streams.out(f"        1 file(s) {'moved' if move else 'copied'}.\r\n")
    return 0


def copy(shell: Shell, rest: str, streams: Streams) -> int:
    """``copy [/y] FILE TARGET``."""
    return _copy_move(shell, rest, streams, move=False)


def move(shell: Shell, rest: str, streams: Streams) -> int:
    """``move [/y] FILE TARGET``."""
    return _copy_move(shell, rest, streams, move=True)


def exit_(shell: Shell, rest: str, streams: Streams) -> int:
    """``exit [/b] [CODE]``."""
    del streams
    words = [word for word in rest.split() if word.lower() != "/b"]
    try:
        raise Leave(int(words[0]) if words else shell.code)
    except ValueError:
        raise Leave(shell.code) from None


def if_(shell: Shell, rest: str, streams: Streams) -> int:
    """``if [not] exist PATH | A==B | errorlevel N  COMMAND [else COMMAND]``."""
    text = rest.strip()
    ignore = text.lower().startswith("/i ")
    text = text[3:].strip() if ignore else text
    negate = text.lower().startswith("not ")
    text = text[4:].strip() if negate else text
    found = re.match(r'(?i)exist\s+("[^"]*"|\S+)\s*(.*)', text, re.DOTALL)
    level = re.match(r"(?i)errorlevel\s+(\d+)\s*(.*)", text, re.DOTALL)
    same = re.match(r'("[^"]*"|\S*?)\s*==\s*("[^"]*"|\S+)\s*(.*)', text, re.DOTALL)
    if found:
        real = shell.path(found[1])
        truth, then = real is not None and is_there(real), found[2]
    elif level:
        truth, then = shell.code >= int(level[1]), level[2]
    elif same:
        pair = (same[1].lower(), same[2].lower()) if ignore else (same[1], same[2])
        truth, then = pair[0] == pair[1], same[3]
    else:
        streams.err(SYNTAX)
        return 1
    if not then.strip():
        streams.err(SYNTAX)
        return 1
    parts = re.match(r"(?is)\s*\((.*?)\)\s*else\s+(.*)", then)
    yes, no = (parts[1], parts[2]) if parts else (then, "")
    chosen = yes if truth != negate else no
    if chosen.strip():
        shell.execute(chosen, streams)
    return shell.code


def for_(shell: Shell, rest: str, streams: Streams) -> int:
    """``for %X in (WORD ...) do COMMAND``."""
    match = re.match(r"(?is)\s*%([a-z])\s+in\s*\(([^)]*)\)\s*do\s+(.+)", rest)
    if match is None:
        streams.err(SYNTAX)
        return 1
    for word in re.split(r"[\s,;=]+", match[2].strip()):
        if re.search(r"[*?\"]", word):
            streams.err(f"The stand-in's FOR does not know '{word}'.\r\n")
            return 1
        shell.check()
        shell.execute(match[3].replace(f"%{match[1]}", word), streams)
    return shell.code


def cmd(shell: Shell, rest: str, streams: Streams) -> int:
    """``cmd [/d] [/s] [/q] /c LINE``."""
    text = rest.strip()
    while re.match(r"(?i)/[dqs]\b", text):
        text = text[2:].strip()
    if not re.match(r"(?i)/[ck]", text):
        streams.err(SYNTAX)
        return 1
    line = text[2:].strip()
    if line.startswith('"') and line.endswith('"'):
        line = line[1:-1]
    inner = Shell(shell.world, shell.commands, dict(shell.variables), shell.cwd, 0, shell.cancelled, shell.alone)
    return inner.run(line, streams)


def start(shell: Shell, rest: str, streams: Streams) -> int:
    """``start ["TITLE"] [/min] COMMAND``: here this waits for the command, although no one reads its output."""
    del streams
    line = re.sub(r'(?i)^\s*("[^"]*"\s*)?(/min\b\s*)?', "", rest)
    Shell(shell.world, shell.commands, dict(shell.variables), shell.cwd, 0, shell.cancelled, shell.alone).run(
        line, Streams(_unheard, _unheard)
    )
    return 0


def _unheard(text: str) -> None:
    del text


def rem(shell: Shell, rest: str, streams: Streams) -> int:
    """``rem``: nothing."""
    del rest, streams
    return shell.code


def where(shell: Shell, rest: str, streams: Streams) -> int:
    """``where PROGRAM``."""
    stem = re.sub(r"\.(exe|com)$", "", rest.strip().lower())
    if stem not in shell.commands.programs:
        streams.err("INFO: Could not find files for the given pattern(s).\r\n")
        return 1
    streams.out(f"C:\\Windows\\System32\\{stem}.exe\r\n")
    return 0


_BUILTIN: dict[str, Command] = {
    "echo": echo,
    "ver": ver,
    "set": set_,
    "cd": cd,
    "chdir": cd,
    "dir": dir_,
    "type": type_,
    "mkdir": mkdir,
    "md": mkdir,
    "del": delete,
    "erase": delete,
    "copy": copy,
    "move": move,
    "exit": exit_,
    "for": for_,
    "if": if_,
    "rem": rem,
    "start": start,
}
_PROGRAMS: dict[str, Command] = {
    "cmd": cmd,
    "powershell": pscommands.powershell,
    "where": where,
    **netcommands.PROGRAMS,
    **searchcommands.PROGRAMS,
    **syscommands.PROGRAMS,
    **waycommands.PROGRAMS,
    **nativecommands.PROGRAMS,
}
COMMANDS = Commands(_BUILTIN, _PROGRAMS)
