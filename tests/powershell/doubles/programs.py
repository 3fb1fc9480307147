"""Programs of Windows, answering as Microsoft documents it, over machine.py's state: programs.py NAME ARGUMENTS"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["WINLAB_MACHINE"])


def state() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "state.json").read_text()))


def save(new: dict[str, Any]) -> None:
    (FOLDER / "state.json").write_text(json.dumps(new))


def code(number: int) -> int:
    """Linux keeps eight bits of an exit code: windows.ps1 takes the whole one from here."""
    (FOLDER / "exit.txt").write_text(str(number))
    return number & 0xFF or 1


def row_of(rows: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Names of services don't mind capitals."""
    return next((one for key, one in rows.items() if key.lower() == name.lower()), None)


def configure(name: str, words: list[str]) -> int:
    """The verb config: options end in "=", and their values are words of their own."""
    now = state()
    row = row_of(now["services"], name)
    if row is None:
        print("[SC] OpenService FAILED 1060:\n\nThe specified service does not exist as an installed service.\n")
        return code(1060)
    starts = {"auto": "Automatic", "demand": "Manual", "disabled": "Disabled"}
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option != "start=" or value not in starts:
            print("DESCRIPTION:\n        Modifies a service entry in the registry and Service Database.")
            return code(1639)
        row["start"] = starts[value]
    save(now)
    print("[SC] ChangeServiceConfig SUCCESS")
    return 0


def sc(words: list[str]) -> int:
    if words[:1] == ["config"]:
        return configure(words[1], words[2:])
    if words[:1] in (["failure"], ["failureflag"]) and row_of(state()["services"], words[1]) is None:
        return code(1060)
    if not words or words[0].lower() not in ("query", "queryex", "qc"):
        return 0
    services = state()["services"]
    names = words[1:] or [name for name, row in services.items() if row["status"] == "Running"]
    for name in names:
        row = row_of(services, name)
        if row is None:
            print(
                f"[SC] {'OpenService' if words[0].lower() == 'qc' else 'EnumQueryServicesStatus:OpenService'} FAILED 1060:\n\nThe specified service does not exist as an installed service.\n"
            )
            return code(1060)
        if words[0].lower() == "qc":
            start = {"Automatic": "2   AUTO_START", "Manual": "3   DEMAND_START", "Disabled": "4   DISABLED"}[
                row["start"]
            ]
            print(
                f"[SC] QueryServiceConfig SUCCESS\n\nSERVICE_NAME: {name}\n        TYPE               : 10  WIN32_OWN_PROCESS\n        START_TYPE         : {start}\n        SERVICE_START_NAME : LocalSystem"
            )
            continue
        running = row["status"] == "Running"
        print(
            f"\nSERVICE_NAME: {name}\n        TYPE               : 10  WIN32_OWN_PROCESS\n        STATE              : {'4  RUNNING' if running else '1  STOPPED'}"
        )
        if running:
            print("                                (STOPPABLE, NOT_PAUSABLE, ACCEPTS_SHUTDOWN)")
        print(
            "        WIN32_EXIT_CODE    : 0  (0x0)\n        SERVICE_EXIT_CODE  : 0  (0x0)\n        CHECKPOINT         : 0x0\n        WAIT_HINT          : 0x0"
        )
    return 0


def shutdown(words: list[str]) -> int:
    now = state()
    flags = [word.lower().replace("-", "/", 1) for word in words]
    wait = next((int(flags[at + 1]) for at, flag in enumerate(flags[:-1]) if flag == "/t"), 30)
    if "/a" in flags:
        if not now["shutdown"]:
            print("Unable to abort the system shutdown because no shutdown was in progress.(1116)", file=sys.stderr)
            return code(1116)
        now["shutdown"] = None
    elif "/r" in flags or "/s" in flags or "/g" in flags:
        if now["shutdown"]:
            print("A system shutdown has already been scheduled.(1190)", file=sys.stderr)
            return code(1190)
        if now["logged_on"] and "/f" not in flags and wait == 0:  # more than 0 seconds imply /f
            print(
                "The shutdown operation cannot be initiated because other users are logged on to the computer.(1191)",
                file=sys.stderr,
            )
            return code(1191)
        now["shutdown"] = "stop" if "/s" in flags else "restart"
    elif "/l" not in flags:
        print(
            'Usage: shutdown [/i | /l | /s | /sg | /r | /g | /a | /p | /h | /e | /o] [/hybrid] [/soft] [/fw] [/f] [/m \\\\computer][/t xxx][/d [p|u:]xx:yy [/c "comment"]]'
        )
        return 1
    save(now)
    return 0


def w32tm(words: list[str]) -> int:
    now = state()
    flags = [word.lower() for word in words]
    if (row_of(now["services"], "w32time") or {}).get("status") != "Running" and flags[:1] != ["/register"]:
        print("The following error occurred: The service has not been started. (0x80070426)")
        return code(-2147023834)
    source = now["time_source"]
    if "/status" in flags:
        if source:
            print(
                f"Leap Indicator: 0(no warning)\nStratum: 4 (secondary reference - syncd by (S)NTP)\nPrecision: -23 (119.209ns per tick)\nRoot Delay: 0.0312500s\nRoot Dispersion: 0.0512500s\n"
                f"ReferenceId: 0x0A4D0001 (source IP:  {source.split(',')[0]})\nLast Successful Sync Time: 11/21/2026 10:05:00 AM\nSource: {source} \nPoll Interval: 6 (64s)\n"
            )
        else:
            print(
                "Leap Indicator: 3(not synchronized)\nStratum: 0 (unspecified)\nPrecision: -23 (119.209ns per tick)\nRoot Delay: 0.0000000s\nRoot Dispersion: 0.0000000s\n"
                "ReferenceId: 0x00000000 (unspecified)\nLast Successful Sync Time: unspecified\nSource: Local CMOS Clock\nPoll Interval: 6 (64s)\n"
            )
    elif "/source" in flags:
        print(source or "Local CMOS Clock")
    elif "/resync" in flags:
        print("Sending resync command to local computer")
        if not source:
            print("The computer did not resync because no time data was available.")
            return code(-2147022719)
        print("The command completed successfully.")
    elif "/config" in flags or "/register" in flags:
        print("The command completed successfully.")
    else:
        print(f"The command line contains an error: {' '.join(words)}")
        return code(-2147024809)
    return 0


def wevtutil(words: list[str]) -> int:
    events = state()["events"]
    logs = sorted({"Application", "Security", "Setup", "System", *(row["log"] for row in events)})
    verb, rest = (words[0].lower() if words else ""), words[1:]
    if verb in ("el", "enum-logs"):
        print("\n".join(logs))
        return 0
    log = next((one for one in logs if rest and one.lower() == rest[0].lower()), None)
    if verb in ("qe", "query-events", "gl", "get-log", "cl", "clear-log", "epl", "export-log") and log is None:
        print("The specified channel could not be found.", file=sys.stderr)
        return code(15007)
    option = dict(word[1:].lower().split(":", 1) for word in rest if word.startswith("/") and ":" in word)
    found = [row for row in events if row["log"] == log]
    if verb in ("qe", "query-events"):
        found.sort(
            key=lambda row: row["time"], reverse=option.get("rd", option.get("reversedirection", "false")) == "true"
        )
        for at, row in enumerate(found[: int(option.get("c", option.get("count", len(found))))]):
            level = ("Information", "Critical", "Error", "Warning", "Information", "Verbose")[row["level"]]
            if option.get("f", option.get("format", "xml")) == "text":
                print(
                    f"Event[{at}]\n  Log Name: {row['log']}\n  Source: {row['provider']}\n  Date: {row['time']}\n  Event ID: {row['id']}\n  Task: N/A\n  Level: {level}\n  Computer: {os.environ.get('COMPUTERNAME', 'node-1')}\n  Description: \n{row['message']}\n"
                )
            else:
                print(
                    f"<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><Provider Name='{row['provider']}'/><EventID>{row['id']}</EventID><Level>{row['level']}</Level>"
                    f"<TimeCreated SystemTime='{row['time']}'/><Channel>{row['log']}</Channel></System><EventData><Data>{row['message']}</Data></EventData></Event>"
                )
    elif verb in ("gl", "get-log"):
        print(f"name: {log}\nenabled: true\ntype: Admin\nlogging:\n  maxSize: 20971520")
    elif verb in ("cl", "clear-log"):
        now = state()
        now["events"] = [row for row in events if row["log"] != log]
        save(now)
    elif verb in ("epl", "export-log"):
        to = rest[1]
        path = Path(f"{FOLDER}/{to[0].lower()}{to[2:]}".replace("\\", "/")) if to[1:2] == ":" else Path(to)
        path.write_text(json.dumps(found))
    else:
        return code(87)
    return 0


def ipconfig(words: list[str]) -> int:
    print("\nWindows IP Configuration\n")
    for row in state()["adapters"]:
        print(f"\nEthernet adapter {row['name']}:\n\n   Connection-specific DNS Suffix  . : ")
        if any(word.lower() in ("/all", "-all") for word in words):
            print(
                f"   Description . . . . . . . . . . . : Red Hat VirtIO Ethernet Adapter\n   Physical Address. . . . . . . . . : {row.get('mac', '')}\n   DHCP Enabled. . . . . . . . . . . : No"
            )
        for address in row["addresses"]:
            print(
                f"   IPv4 Address. . . . . . . . . . . : {address}\n   Subnet Mask . . . . . . . . . . . : 255.255.255.0"
            )
        print(f"   Default Gateway . . . . . . . . . : {row.get('gateway', '')}")
    return 0


def netstat(words: list[str]) -> int:
    print("\nActive Connections\n\n  Proto  Local Address          Foreign Address        State           PID")
    for row in state()["connections"]:
        local, remote = f"{row['local']}:{row['port']}", f"{row['remote']}:{row['remote_port']}"
        print(
            f"  TCP    {local:<22} {remote:<22} {('LISTENING' if row['state'] == 'Listen' else row['state'].upper()):<15} {row['process']}"
        )
    return 0


def tzutil(words: list[str]) -> int:
    now = state()
    verb = words[0].lower() if words else "/?"
    if verb == "/g":
        print(now["timezone"], end="")
    elif verb == "/s" and len(words) > 1:
        now["timezone"] = words[1]
        save(now)
    elif verb == "/l":
        print("(UTC) Coordinated Universal Time\nUTC\n")
    else:
        print("Windows Time Zone Utility")
        return 1
    return 0


def cscript(words: list[str]) -> int:
    rest = [word for word in words if not word.startswith("//")]
    if "//nologo" not in (word.lower() for word in words):
        print(
            "Microsoft (R) Windows Script Host Version 5.812\nCopyright (C) Microsoft Corporation. All rights reserved.\n"
        )
    if not rest or not rest[0].lower().replace("\\", "/").endswith("slmgr.vbs"):
        print(f'Input Error: Can not find script file "{rest[0] if rest else ""}".')
        return 1
    minutes = state()["evaluation"]
    verb = rest[1].lower() if len(rest) > 1 else "/dli"
    if verb in ("/dli", "/dlv"):
        print(
            f"Name: Windows(R), ServerStandardEval edition\nDescription: Windows(R) Operating System, TIMEBASED_EVAL channel\nLicense Status: {'Licensed' if minutes else 'Notification'}"
        )
        if minutes:
            print(f"Timebased activation expiration: {minutes} minute(s) ({minutes // 1440} day(s))")
        if verb == "/dlv":
            print("Remaining Windows rearm count: 5")
    elif verb == "/xpr":
        print(
            "Windows(R), ServerStandardEval edition:\n    Timebased activation will expire 5/20/2027 10:00:00 AM"
            if minutes
            else "Windows(R), ServerStandardEval edition:\n    Windows is in Notification mode"
        )
    elif verb == "/rearm":
        print("Command completed successfully.\nPlease restart the system for the changes to take effect.")
    elif verb == "/ato":
        print("Activating Windows(R), ServerStandardEval edition ...\nProduct activated successfully.")
    return 0


def dism(words: list[str]) -> int:
    if "/get-packages" not in (word.lower() for word in words):
        print("\n[==  20.0%  ]\n[=====100.0%=====]\nThe operation completed successfully.")
        return 0
    print(
        "\nDeployment Image Servicing and Management tool\nVersion: 10.0.20348.681\n\nImage Version: 10.0.20348.2762\n\nPackages listing:\n"
    )
    for name in state()["packages"]:
        print(
            f"Package Identity : {name}\nState : Installed\nRelease Type : Security Update\nInstall Time : 11/20/2026 10:00 AM\n"
        )
    print("The operation completed successfully.")
    return 0


def hostname(words: list[str]) -> int:
    print(os.environ.get("COMPUTERNAME", "node-1"))
    return 0


def whoami(words: list[str]) -> int:
    if words == ["/groups"]:
        # S-1-16-12288: high integrity, what administrators have whose token is not filtered
        print(f"Mandatory Label\\High Mandatory Level  Label  {state()['integrity']}")
    else:
        print(f"{os.environ.get('COMPUTERNAME', 'node-1').lower()}\\administrator")
    return 0


def register(words: list[str]) -> int:
    """containerd.exe --register-service, as cmd/containerd/command/service_windows.go does it."""
    now = state()
    if row_of(now["services"], "containerd") is not None:
        print("containerd: the service containerd already exists", file=sys.stderr)
        return 1
    now["services"]["containerd"] = {"status": "Stopped", "start": "Automatic", "depends": []}
    save(now)
    path = FOLDER / "registry.json"
    keys = json.loads(path.read_text())
    command = '"C:\\Program Files\\containerd\\containerd.exe" --run-service ' + " ".join(words[1:])
    keys[r"HKLM\SYSTEM\CurrentControlSet\Services\containerd"] = {"ImagePath": command}
    path.write_text(json.dumps(keys))
    return 0


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
