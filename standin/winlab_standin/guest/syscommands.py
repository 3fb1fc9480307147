"""Commands about the system: registry, services, processes, power."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from winlab_standin.guest import answer, cmdline, registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab_standin.guest.shell import Shell, Streams

REG_MISSING = "ERROR: The system was unable to find the specified registry key or value.\r\n"
REG_OPTIONS = {
    "query": ("/v", "/ve"),
    "add": ("/v", "/ve", "/t", "/d", "/f"),
    "delete": ("/v", "/ve", "/f"),
}
REG_SYNTAX = 'ERROR: Invalid syntax.\r\nType "REG /?" for usage.\r\n'


def whoami(shell: Shell, rest: str, streams: Streams) -> int:
    """``whoami``."""
    if rest.strip():
        streams.err(f"ERROR: Invalid argument/option - '{rest.split()[0]}'.\r\n")
        return 1
    streams.out(f"{shell.world.name()}\\{shell.world.account()}\r\n".lower())
    return 0


def reg(shell: Shell, rest: str, streams: Streams) -> int:
    """``reg query KEY``, ``reg add KEY [/t TYPE] [/d DATA] [/f]``, ``reg delete KEY /f``, each with [/v NAME | /ve]."""
    words = cmdline.split(rest)
    action = words[0].lower() if words else ""
    key = registry.full(words[1]) if len(words) > 1 else None
    if action not in ("query", "add", "delete"):
        streams.err(REG_SYNTAX)
        return 1
    if key is None:
        streams.err("ERROR: Invalid key name.\r\n")
        return 1
    options: dict[str, str] = {}
    at = 2
    while at < len(words):
        flag = words[at].lower()
        if flag in ("/v", "/t", "/d") and at + 1 < len(words):
            options[flag] = words[at + 1]
            at += 1
        elif flag in ("/f", "/ve", "/s", "/va"):
            options[flag] = ""
        else:
            streams.err(REG_SYNTAX)
            return 1
        at += 1
    unknown = [flag for flag in options if flag not in REG_OPTIONS[action]]
    if unknown or {"/v", "/ve"} <= set(options):
        about = f"The stand-in's REG {action.upper()} knows no {unknown[0]}.\r\n" if unknown else REG_SYNTAX
        streams.err(about)
        return 1
    name = "" if "/ve" in options else options.get("/v")
    return {"query": _query, "add": _add, "delete": _delete}[action](shell, key, name, options, streams)


def _query(shell: Shell, key: str, name: str | None, options: dict[str, str], streams: Streams) -> int:
    del options
    found = shell.world.registry.find(key)
    values = found[1] if found else {}
    if name is not None:
        values = {other: data for other, data in values.items() if other.lower() == name.lower()}
    if found is None or (name is not None and not values):
        streams.err(REG_MISSING)
        return 1
    streams.out(f"\r\n{found[0]}\r\n")
    for other, (kind, data) in values.items():
        streams.out(f"    {other or '(Default)'}    {kind}    {data}\r\n")
    streams.out("\r\n")
    if name is None:
        for child in shell.world.registry.children(key):
            streams.out(f"{child}\r\n")
    return 0


def _add(shell: Shell, key: str, name: str | None, options: dict[str, str], streams: Streams) -> int:
    kind, data = options.get("/t", "REG_SZ").upper(), options.get("/d", "")
    limit = {"REG_DWORD": 1 << 32, "REG_QWORD": 1 << 64}.get(kind)
    if limit:
        number = answer.number(data or "0") if re.fullmatch(r"0[xX][0-9a-fA-F]+|\d*", data) else limit
        data = str(number)
    if kind not in registry.TYPES or (limit and number >= limit) or (name is None and {"/t", "/d"} & set(options)):
        streams.err(REG_SYNTAX)
        return 1
    if kind == "REG_BINARY" and not re.fullmatch("([0-9a-fA-F]{2})*", data):
        streams.err(REG_SYNTAX)
        return 1
    if name is not None and "/f" not in options and shell.world.registry.get(key, name) is not None:
        streams.err(f"Value {name or '(Default)'} exists, and the stand-in can't ask; give /f.\r\n")
        return 1
    shell.world.registry.add(key, name, kind, data)
    streams.out("The operation completed successfully.\r\n")
    return 0


def _delete(shell: Shell, key: str, name: str | None, options: dict[str, str], streams: Streams) -> int:
    if "/f" not in options:
        streams.err("ERROR: The stand-in can't ask; give /f.\r\n")
        return 1
    if not shell.world.registry.delete(key, name):
        streams.err(REG_MISSING)
        return 1
    streams.out("The operation completed successfully.\r\n")
    return 0


def net(shell: Shell, rest: str, streams: Streams) -> int:
    """``net start``: the services that run. Starting and stopping them is refused."""
    if rest.strip().lower() == "start":
        running = sorted(name for name, runs in shell.world.services().items() if runs)
        streams.out("These Windows services are started:\r\n\r\n")
        streams.out("".join(f"   {name}\r\n" for name in running))
        streams.out("\r\nThe command completed successfully.\r\n\r\n")
        return 0
    words = rest.split()
    if len(words) == 2 and words[0].lower() == "start":
        for name, runs in shell.world.services().items():
            if name.lower() == words[1].lower() and runs:
                streams.err("The requested service has already been started.\r\n\r\n")
                return 2
        streams.err("The service name is invalid.\r\n\r\n")
        return 2
    streams.err("The syntax of this command is:\r\n\r\nNET START [service]   (the stand-in knows no other)\r\n")
    return 1


def sc(shell: Shell, rest: str, streams: Streams) -> int:
    """``sc query NAME``."""
    words = cmdline.split(rest)
    services = {name.lower(): (name, runs) for name, runs in shell.world.services().items()}
    if len(words) != 2 or words[0].lower() != "query":
        streams.err("ERROR:  Unrecognized command (the stand-in knows only 'query NAME')\r\n")
        return 1
    if words[1].lower() not in services:
        streams.out(
            "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:\r\n\r\n"
            "The specified service does not exist as an installed service.\r\n\r\n"
        )
        return 1060
    name, runs = services[words[1].lower()]
    state = "4  RUNNING" if runs else "1  STOPPED"
    streams.out(f"\r\nSERVICE_NAME: {name}\r\n        TYPE               : 10  WIN32_OWN_PROCESS\r\n")
    streams.out(f"        STATE              : {state}\r\n        WIN32_EXIT_CODE    : 0  (0x0)\r\n")
    return 0


def shutdown(shell: Shell, rest: str, streams: Streams) -> int:
    """``shutdown /r|/s [/f] [/t SECONDS] [/c TEXT]``.

    While someone is logged on at the screen, InitiateSystemShutdownEx refuses without force:
    ERROR_SHUTDOWN_USERS_LOGGED_ON.
    """
    words = [re.sub("^-", "/", word) for word in cmdline.split(rest)]
    flags = {word.lower() for word in words}
    action = "reboot" if "/r" in flags else "poweroff" if "/s" in flags or "/p" in flags else ""
    delay = 0.0 if "/p" in flags else 30.0
    at = 0
    while at < len(words):
        flag = words[at].lower()
        if flag == "/t" and at + 1 < len(words) and words[at + 1].isdigit():
            delay = float(words[at + 1])
            at += 1
        elif flag in ("/c", "/d"):
            at += 1
        elif flag not in ("/r", "/s", "/f", "/p"):
            action = ""
        at += 1
    if not action:
        streams.err("Usage: shutdown /r | /s [/f] [/t xxx]   (the stand-in knows no other)\r\n")
        return 1
    if shell.world.logged_on() and "/f" not in flags and delay == 0:  # /t over 0 implies /f
        streams.err("The system shutdown cannot be initiated because there are other users logged on to the computer.")
        streams.err("(1191)\r\n")
        return 1191
    # the answer must still reach the caller
    shell.world.power(action, max(delay, 1.0))
    return 0


def logoff(shell: Shell, rest: str, streams: Streams) -> int:
    """``logoff``: ends the session on the screen."""
    if rest.strip():
        streams.err("Invalid parameter(s)\r\n")
        return 1
    shell.world.log_off()
    return 0


def systeminfo(shell: Shell, rest: str, streams: Streams) -> int:
    """``systeminfo``, in short."""
    if rest.strip():
        streams.err(f"ERROR: Invalid argument/option - '{rest.split()[0]}'.\r\n")
        return 1
    windows = shell.world.windows
    rows = {
        "Host Name": shell.world.name().upper(),
        "OS Name": f"Microsoft {windows.name}",
        "OS Version": f"10.0.{windows.release.build} N/A Build {windows.release.build}",
        "OS Manufacturer": "Microsoft Corporation (winlab's stand-in)",
        "System Type": "x64-based PC",
        "Total Physical Memory": f"{shell.world.memory():,} MB",
        "Domain": "WORKGROUP",
    }
    for number, adapter in enumerate(shell.world.adapters(), 1):
        rows[f"Network Card {number}"] = ", ".join(one for one, _ in adapter.addresses)
    streams.out("\r\n" + "".join(f"{name + ':':<27}{value}\r\n" for name, value in rows.items()))
    return 0


def tasklist(shell: Shell, rest: str, streams: Streams) -> int:
    """``tasklist``."""
    if rest.strip():
        streams.err("ERROR: Invalid argument/option (the stand-in knows none).\r\n")
        return 1
    streams.out("\r\nImage Name                     PID    Mem Usage\r\n")
    streams.out("========================= ======== ============\r\n")
    for number, name, size in shell.world.processes():
        streams.out(f"{name:<25} {number:>8} {size:>10,} K\r\n")
    return 0


PROGRAMS: dict[str, Callable[[Shell, str, Streams], int]] = {
    "whoami": whoami,
    "reg": reg,
    "net": net,
    "sc": sc,
    "shutdown": shutdown,
    "logoff": logoff,
    "systeminfo": systeminfo,
    "tasklist": tasklist,
}
