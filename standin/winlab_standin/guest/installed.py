"""The installed system: the passes specialize and oobeSystem at the first start, and the services at every start."""

from __future__ import annotations

import json
import os
import secrets
import struct
import threading
import time
from pathlib import Path

from winlab_standin.guest import (
    accounts,
    answer,
    devices,
    driverstore,
    engine,
    node,
    plan,
    players,
    releases,
    routes,
    sysprep,
    wine,
    winservices,
)
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.base import StandinError, run, start
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.kept import write
from winlab_standin.guest.place import STATE, C
from winlab_standin.guest.releases import Windows
from winlab_standin.guest.report import Log, bug, draw, write_port
from winlab_standin.guest.services import Services
from winlab_standin.guest.setup import execute, halt
from winlab_standin.guest.shell import Shell
from winlab_standin.guest.world import World, ask_power

CONFIG = C / "Windows/System32/config"
PANTHER = C / "Windows/Panther"
SHELL_SETUP = "Microsoft-Windows-Shell-Setup"
DEPLOYMENT = "Microsoft-Windows-Deployment"
UNEXPECTED = (
    "The computer restarted unexpectedly or encountered an unexpected error. Windows installation cannot proceed. "
    'To install Windows, click "OK" to restart the computer, and then restart the installation.'
)
LOOK = 5.0  # seconds between two looks at the CD drives
BREAK = 1.0  # seconds between two looks for requests of others; in an emulator each look costs milliseconds
SYNC = 3.0  # seconds: no more than this is lost when the machine is reset
FORCED = 180.0  # seconds from a request to restart until it is forced
POWER_KEY = 116  # KEY_POWER, linux/input-event-codes.h
OS_RELEASE = Path("/usr/lib/os-release")  # what the guest agent reads


class State:
    """How far this installation is; stored on C:."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}

    def set(self, **values: str) -> None:
        """Change values and write them."""
        self.values |= values
        write(self.path, json.dumps(self.values))
        os.sync()


def os_release(windows: Windows) -> str:
    """What the guest agent reports about the system, as its Windows build does."""
    rows = {
        "ID": "mswindows",
        "NAME": "Microsoft Windows",
        "PRETTY_NAME": windows.name,
        "VERSION": f"Microsoft Windows Server {windows.release.name}",
        "VERSION_ID": windows.release.name,
        "VARIANT": "server",
        "VARIANT_ID": "server",
    }
    return "".join(f'{name}="{text}"\n' for name, text in rows.items())


def finished(state: State, cached: Path) -> bool:
    """Whether the first start has finished. bootstrap.ps1 removes the cached answer file. If that is missing after the
    specialize pass, the machine was reset before the end could be recorded."""
    phase = state.values.get("phase")
    return phase == "done" or (phase == "oobe" and not cached.is_file())


def main() -> None:
    """Run the installed system until it is switched off."""
    wine.arrange()
    scripted = engine.mount()
    windows = releases.installed(C)
    OS_RELEASE.write_text(os_release(windows))
    drives = devices.Drives()
    drives.refresh()
    node.settle(CONFIG, World.real())
    state = State(CONFIG / "standin-state.json")
    world = World.real()
    services = Services(lambda: Shell(World.real(), COMMANDS), CONFIG, windows)
    threading.Thread(target=_power_button, daemon=True).start()
    services.guest_agent()
    if "name" in state.values:
        _name(state.values["name"])
        network(state.values["name"])
    if finished(state, PANTHER / "unattend.xml"):
        accounts.activate(CONFIG, windows, state.values["name"])
        services.start_configured()
        threading.Thread(target=routes.restore, args=(CONFIG,), daemon=True).start()
        write_port("setup: Windows has started\r\n")
        if scripted:
            engine.start_tasks(world, COMMANDS)
        threading.Thread(target=_logon_screen, args=(world,), daemon=True).start()
    else:
        threading.Thread(target=_first_start, args=(state, world), daemon=True).start()
    manager = winservices.Manager(CONFIG / "standin-services.json")
    number = wine.boot_number(CONFIG / players.BOOTS)
    wine.start_soon(windows, number, winservices.registry_text(list(manager.units().values())), manager.serve)
    _supervise(services, drives, windows)


def _supervise(services: Services, drives: devices.Drives, windows: Windows) -> None:
    """Do what other processes request with files: restart a service, restart or switch off the machine. Also check
    whether CDs were inserted or ejected."""
    synced = looked = time.monotonic()
    while True:
        services.serve_requests()
        services.drop_if_asked()
        if time.monotonic() > looked + LOOK:
            drives.refresh()
            looked = time.monotonic()
        if time.monotonic() > synced + SYNC:
            os.sync()
            synced = time.monotonic()
        wish = STATE / "power"
        if wish.is_file() and (text := wish.read_text().strip()):
            action, _, delay = text.partition(" ")
            wish.unlink()
            time.sleep(float(delay or 0))
            draw(f"Windows Server {windows.release.name}", ["Restarting" if action == "reboot" else "Shutting down"])
            engine.resident().end()
            wine.stop()
            run(["busybox", action])
            time.sleep(FORCED)  # the first program ends this one long before that, unless something hangs
            Path("/proc/sysrq-trigger").write_text("b" if action == "reboot" else "o")
        time.sleep(BREAK)


def _power_button() -> None:
    """Switch off when the ACPI power button is pressed."""
    events = [
        Path("/dev/input") / path.name
        for path in Path("/sys/class/input").glob("event*")
        if (path / "device/name").read_text().strip() == "Power Button"
    ]
    if not events:
        return
    size = struct.calcsize("llHHi")
    with events[0].open("rb") as device:
        while data := device.read(size):
            _, _, _, code, value = struct.unpack("llHHi", data)
            if code == POWER_KEY and value == 1:
                ask_power("poweroff")


def _name(name: str) -> None:
    run(["busybox", "hostname", name])
    # its own name resolves to its address once it has one (dhcp.sh), as in Windows: kubelet.exe uses that
    Path("/etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")


def network(name: str) -> None:
    """Bring up every adapter that has a driver, and request an address by DHCP."""
    run(["ip", "link", "set", "lo", "up"])
    kept = CONFIG / "standin-mtu"
    drivers = driverstore.known(C)
    for path in sorted(Path("/sys/class/net").iterdir()):
        if path.name == "lo" or not (path / "device").exists():
            continue
        if not driverstore.works(device := driverstore.hardware(path), drivers):
            write_port(f"setup: no driver for the adapter {device}\r\n")
            continue
        if kept.is_file():
            run(["ip", "link", "set", "dev", path.name, "mtu", kept.read_text().strip()])
        run(["ip", "link", "set", path.name, "up"])
        options = ["-f", "-i", path.name, "-s", "/usr/lib/standin/dhcp", "-t", "10", "-T", "2", "-A", "3"]
        start(["busybox", "udhcpc", *options, "-O", "search", "-x", f"hostname:{name}"])


def _first_start(state: State, world: World) -> None:
    log = Log(PANTHER, f"Windows Server {world.windows.release.name}")
    try:
        if state.values.get("phase") == sysprep.GENERALIZED and not _find_answers(state, log):
            return
        root = answer.parse((PANTHER / "unattend.xml").read_bytes(), r"C:\Windows\Panther\unattend.xml", "specialize")
        if not state.values.get("phase"):
            _specialize(root, state, world, log)
        _oobe(root, state, world, log)
    except AnswerError as error:
        log.refuse(f"{UNEXPECTED} {error}", error.detail)
        halt()
    except (StandinError, OSError) as error:
        log.refuse(UNEXPECTED, " ".join(str(error).split()))
        halt()
    except Exception:  # in a thread, it would be lost otherwise
        bug()
        log.refuse(UNEXPECTED, "a bug of the stand-in, see above")
        halt()


def _find_answers(state: State, log: Log) -> bool:
    """Cache a clone's own answer file as Windows does; returns whether there is one."""
    log.say("Windows was generalized: looking for an answer file")
    discs = [path for path in sorted(devices.MEDIA.glob("[A-Z]")) if path.is_dir()]
    data = sysprep.clone_answers(discs)
    if data is None:
        write_port("setup: waiting: no answer file was found, so Windows asks for region and password\r\n")
        draw("Hi there", ["Before you get started, we need a few details.", "", "What's your home country/region?"])
        return False
    (PANTHER / "unattend.xml").write_bytes(data)
    state.set(phase="")
    return True


def _specialize(root: answer.Node, state: State, world: World, log: Log) -> None:
    log.say("Getting devices ready (pass specialize)")
    path = r"C:\Windows\Panther\unattend.xml"
    answer.check(root, "specialize", path, world.windows.languages)
    shell = answer.component(root, "specialize", SHELL_SETUP)
    random = f"WIN-{secrets.token_hex(6).upper()[:11]}"
    name = plan.computer_name(shell.value("ComputerName") or "*", random)
    _name(name)
    network(name)
    deployment = answer.component(root, "specialize", DEPLOYMENT)
    for command in answer.commands(deployment, "RunSynchronous/RunSynchronousCommand", "Path"):
        execute(log, world, command)
    state.set(name=name, phase="oobe")


def _oobe(root: answer.Node, state: State, world: World, log: Log) -> None:
    log.say("Getting ready (pass oobeSystem)")
    path = r"C:\Windows\Panther\unattend.xml"
    answer.check(root, "oobeSystem", path, world.windows.languages)
    shell = answer.component(root, "oobeSystem", SHELL_SETUP)
    password = _password(shell, log)
    if password is None:
        log.refuse(
            "Customize settings. Type a password for the built-in administrator account.", "no password is given"
        )
        halt()
        return
    accounts.store(CONFIG / accounts.SAM, password)
    accounts.activate(CONFIG, world.windows, state.values["name"])
    (C / "Users/Administrator").mkdir(parents=True, exist_ok=True)
    commands = answer.commands(shell, "FirstLogonCommands/SynchronousCommand", "CommandLine")
    if _logs_on(shell, password, log, world.account()):
        log.say(f"{world.account()} logs on: the first logon's commands")
        by = "a PowerShell engine" if engine.program() else "Python in their place: the media have no PowerShell engine"
        log.say(f"winlab's scripts are run by {by}")
        world.log_on()
        for command in commands:
            execute(log, world, command)
    elif commands:
        log.say("nobody logs on automatically, so FirstLogonCommands wait")
    cached = PANTHER / "unattend.xml"
    if cached.is_file():  # bootstrap.ps1 removes it
        cached.write_bytes(answer.conceal(cached.read_bytes()))
    state.set(phase="done")
    _logon_screen(world)


def _password(shell: answer.Node, log: Log) -> str | None:
    try:
        password = answer.password(shell.first("UserAccounts/AdministratorPassword"))
    except ValueError as error:
        raise AnswerError(UNEXPECTED, f"AdministratorPassword: {error}") from error
    if password is not None and not accounts.complex_enough(password):
        raise AnswerError(
            "Windows could not complete the installation. The password does not meet the password policy requirements.",
            "AdministratorPassword needs 6 characters or more of three kinds",
        )
    log.write("Info", "the administrator's password is set")
    return password


def _logs_on(shell: answer.Node, password: str, log: Log, account: str) -> bool:
    logon = shell.first("AutoLogon")
    if logon is None or logon.value("Enabled").lower() not in ("true", "1"):
        return False
    if logon.value("Username").lower() != account.lower():
        log.say(f"automatic logon failed: there is no account '{logon.value('Username')}'")
        return False
    try:
        given = answer.password(logon.first("Password"))
    except ValueError as error:
        log.say(f"automatic logon failed: Password: {error}")
        return False
    if given != password:
        log.say("automatic logon failed: The user name or password is incorrect.")
        return False
    return True


def _logon_screen(world: World) -> None:
    """Show name and addresses while the system runs."""
    shown: list[str] = []
    while True:
        lines = ["Press Ctrl+Alt+Delete to unlock.", "", f"Computer name:  {world.name()}"]
        for adapter in world.adapters():
            addresses = ", ".join(one for one, _ in adapter.addresses if ":" not in one)
            lines.append(f"Ethernet:       {addresses or 'no address yet'}  (MTU {adapter.mtu})")
        running = [name for name, runs in world.services().items() if runs]
        lines.append(f"Services:       {', '.join(running) or 'none'}")
        if lines != shown:
            draw(world.windows.name, lines)
            shown = lines
        time.sleep(30)
