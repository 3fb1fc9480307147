"""What Windows knows about itself on a worker, for all code that reads or changes it.

A simulation in Python calls the methods of :class:`Node`. A script in the PowerShell engine gets the same as one
document, :class:`State`, because the fakes of Windows' cmdlets (``doubles/windows.ps1``) read and change such a
document in tests, too. :meth:`Node.change` applies what the script has changed. Services, adapters and the account are
the real ones. What the stand-in does not have (features, tasks, HNS) is stored in a file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winlab_standin.guest import accounts, firewall, winservices
from winlab_standin.guest.kept import locked, write
from winlab_standin.guest.nodestate import Kept, NetAdapter, Nothing, Service, State, User
from winlab_standin.guest.place import STATE
from winlab_standin.guest.releases import ACCOUNTS, ENGLISH, NO_OPENSSH, STAYING_APP
from winlab_standin.guest.winservices import Manager, Unit
from winlab_standin.guest.world import World

FILE = "standin-node.json"  # in System32\\config
AVAILABLE, PENDING, INSTALLED = "Available", "InstallPending", "Installed"
FEATURES = ("Containers", "Hyper-V", "RemoteAccess", "Routing", "RSAT-RemoteAccess-PowerShell")
RUNNING, STOPPED = "Running", "Stopped"
AT_START = "at startup"  # a task's trigger
RESTARTS = {"sshd", "WinRM"}  # services of Windows that really restart
DROP = 6.0  # seconds without connections while HNS makes a network
OFFLINE = 99  # how many times Windows Update can't be reached, in a Windows that never reaches it
EVALUATION = 180 * 24 * 60  # minutes
STAYS = "Removal failed. 0x80073CFA"  # of an app
COMPLETE = "IMAGE_STATE_COMPLETE"  # Microsoft, "Windows Setup States"
RESEALED = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"
PRIVATE = {firewall.PRIVATE: "Private", firewall.PUBLIC: "Public"}


Rows = list[dict[str, Any]]
NOTHING: Nothing = {
    "policies": [],
    "updates": [],
    "events": [],
    "hotfixes": [],
    "devices": [],
    "disks": [],
    "partitions": [],
    "connections": [],
    "dns": {},
    "reachable": [],
    "provisioned": [],
    "defender": True,
    "timezone": "UTC",
    "features_refused": False,
    "cim": {},
    "hns_busy": 0,
    "hns_errors": {},
    "hns_gone": 0,
    "task_states": [],
    "dead_tasks": [],
}


def _service(status: str, start: str) -> Service:
    return {"status": status, "start": start, "depends": []}


def _fresh() -> Kept:
    return {
        "services": {
            "hns": _service(STOPPED, "Manual"),
            "RemoteAccess": _service(STOPPED, "Disabled"),
            "sshd": _service(STOPPED, "Manual"),
            "W32Time": _service(RUNNING, "Automatic"),
            "WinRM": _service(RUNNING, "Automatic"),
            "wuauserv": _service(RUNNING, "Manual"),
        },
        "features": dict.fromkeys(FEATURES, AVAILABLE),
        "tasks": {},
        "rules": {},
        "networks": [],
        "endpoints": [],
        "removed_apps": [],
    }


def _pass(text: str) -> None:
    del text


def free(place: Path) -> int:
    """Bytes that are free where a folder is."""
    about = os.statvfs(place)
    return about.f_bfree * about.f_frsize


def _drop() -> None:
    (STATE / "drop").write_text(f"{DROP}\n")
    time.sleep(DROP)


@dataclass
class Node:
    """Windows on this machine. *config* is System32\\config; *restart* restarts a service of Windows. *attempt* tries a
    command whose service only pretends to run. *drop* cuts connections off while HNS makes a network."""

    world: World
    services: Manager
    config: Path
    restart: Callable[[str], None] = _pass
    attempt: Callable[[str], None] = _pass
    drop: Callable[[], None] = _drop

    # -- what is stored

    def kept(self) -> Kept:
        """The file's content; that of a fresh Windows if there is no file."""
        path = self.config / FILE
        fresh = _fresh()
        if NO_OPENSSH in self.world.windows.traps:
            del fresh["services"]["sshd"]
        if path.is_file():
            fresh |= json.loads(path.read_text(encoding="utf-8"))
        return fresh

    @contextmanager
    def changing(self) -> Iterator[Kept]:
        """What is stored, to change it; others wait meanwhile."""
        with locked(self.config / FILE):
            kept = self.kept()
            yield kept
            write(self.config / FILE, json.dumps(kept, indent=1))

    # -- for simulations in Python, and for change()

    def feature(self, name: str) -> str:
        """A feature's InstallState."""
        return self.kept()["features"].get(name, AVAILABLE)

    def install(self, names: list[str]) -> None:
        """Install features; they work after a restart."""
        with self.changing() as kept:
            kept["features"] |= dict.fromkeys(names, PENDING)

    def pending(self) -> bool:
        """Whether a feature waits for a restart."""
        return PENDING in self.kept()["features"].values()

    def make_network(self, row: dict[str, Any]) -> None:
        """Have HNS make a network, which cuts the connection for some seconds."""
        firewall.set_category(self.world.registry, firewall.PUBLIC)  # behind the virtual switch Windows sees a new one
        self.drop()
        with self.changing() as kept:
            kept["networks"] = [*[one for one in kept["networks"] if one["Name"] != row["Name"]], row]

    def networks(self) -> dict[str, dict[str, Any]]:
        """The networks of HNS by name."""
        return {str(row["Name"]): row for row in self.kept()["networks"]}

    def apps(self) -> list[str]:
        """The apps that one user has."""
        removed = self.kept()["removed_apps"]
        return [app for app in self.world.windows.apps if app not in removed]

    def remove_app(self, name: str) -> None:
        """Have SYSTEM remove an app.

        :raises OSError: Windows refuses.
        """
        if name == STAYING_APP:
            raise OSError(STAYS)
        with self.changing() as kept:
            kept["removed_apps"].append(name)

    # -- for scripts

    def state(self) -> State:
        """Everything, as the fakes need it."""
        kept, world = self.kept(), self.world
        live, closed = world.services(), firewall.closed(world.registry)
        services: dict[str, Service] = {name: {**row} for name, row in kept["services"].items()}
        for name in RESTARTS & services.keys():
            services[name]["status"] = RUNNING if live.get(name) and services[name]["status"] == RUNNING else STOPPED
        for name, unit in self.services.units().items():
            status = RUNNING if self.services.state(name) == "running" else STOPPED
            start = "Automatic" if unit.automatic else "Manual"
            services[name] = {"status": status, "start": start, "depends": list(unit.depends)}
        servers, _ = world.resolver()
        adapters: list[NetAdapter] = [
            {
                "name": "Ethernet" if number == 1 else f"Ethernet {number}",
                "ifIndex": number + 3,
                "addresses": [one for one, _ in adapter.addresses if ":" not in one],
                "mac": adapter.mac.replace(":", "-").upper(),
                "gateway": adapter.lease.get("router", "").split(" ")[0],
                "dns": servers,
            }
            for number, adapter in enumerate(world.adapters(), 1)
        ]
        if adapters:
            adapters[0]["addresses"] += [str(row["IPAddress"]) for row in kept["endpoints"] if row.get("Attached")]
        category = PRIVATE[firewall.category(world.registry)]
        apps = [
            {"name": app, "users": ["Installed"], "stays": STAYS if app == STAYING_APP else ""} for app in self.apps()
        ]
        users: list[User] = [
            {
                "Name": world.account(),
                "SID": "S-1-5-21-1004336348-1177238915-682003330-500",
                "Lockout": accounts.is_locked(world.clock()),
            },
            {"Name": "Guest", "SID": "S-1-5-21-1004336348-1177238915-682003330-501", "Lockout": False},
        ]
        return {
            "services": services,
            "features": kept["features"],
            "tasks": kept["tasks"],
            "rules": kept["rules"],
            "closed": closed,
            "unguarded": [],
            "adapters": adapters,
            "profiles": [{"ifIndex": row["ifIndex"], "category": category} for row in adapters],
            "mtu": next((adapter.mtu for adapter in world.adapters()), 1500),
            "networks": kept["networks"],
            "endpoints": kept["endpoints"],
            "users": users,
            "logged_on": [world.account()] if world.logged_on() else [],
            "release": world.windows.release.name,
            "language": world.windows.language,
            "traps": list(world.windows.traps),
            "booted": world.booted(),
            "processes": [],  # sysprep ends at once
            "evaluation": EVALUATION,
            "volumes": [self._volume(letter) for letter in sorted(world.drives.letters)],
            "offline": OFFLINE if NO_OPENSSH in world.windows.traps else 0,
            "apps": apps if world.windows.desktop else None,
            **NOTHING,
        }

    def _volume(self, letter: str) -> dict[str, Any]:
        place = self.world.drives.letters[letter]
        kind, system = (3, "NTFS") if letter == "C" else (5, "UDF")
        about = os.statvfs(place)
        size = about.f_blocks * about.f_frsize
        return {"letter": letter, "fs": system, "type": kind, "size": size, "free": free(place), "label": ""}

    def phase(self) -> str:
        """How far this installation is (installed.State)."""
        path = self.config / "standin-state.json"
        return str(json.loads(path.read_text()).get("phase", "")) if path.is_file() else ""

    def change(self, before: State, after: State, command: Callable[[str], str]) -> None:
        """Apply what a script has changed in the document. *command* returns a service's, which is in the registry.

        :raises OSError: Windows refuses; further changes of the same service are not applied.
        """
        with self.changing() as kept:
            _merge(kept["features"], before["features"], after["features"])
            _merge(kept["tasks"], before["tasks"], after["tasks"])
            _merge(kept["rules"], before["rules"], after["rules"])
            kept["endpoints"] = _rows(kept["endpoints"], before["endpoints"], after["endpoints"])
            gone = {row["ID"] for row in before["networks"]} - {row["ID"] for row in after["networks"]}
            kept["networks"] = [row for row in kept["networks"] if row["ID"] not in gone]
            apps = [{str(row["name"]) for row in one["apps"] or []} for one in (before, after)]
            kept["removed_apps"] += sorted(apps[0] - apps[1])
        for name, text in after["rules"].items():
            if name not in before["rules"]:
                self._rule(name, text)
        for row in after["networks"]:
            if row["ID"] not in {one["ID"] for one in before["networks"]}:
                self.make_network(row)
        if before["profiles"] != after["profiles"]:
            wanted = {row["category"] for row in after["profiles"]}
            firewall.set_category(self.world.registry, firewall.PUBLIC if "Public" in wanted else firewall.PRIVATE)
        if before["users"] != after["users"] and after["users"][0]["Name"] == ACCOUNTS[ENGLISH]:
            accounts.rename(self.config, self.world.windows, self.world.name())
        self._change_services(before["services"], after["services"], command)

    def _rule(self, name: str, text: str) -> None:
        shown, _, about = text.rpartition(": ")
        direction, action, protocol, ports, *_ = [*about.split(" "), "", "", "", ""]
        if (direction, action) == ("Inbound", "Allow"):
            firewall.add_rule(self.world.registry, name, ports, shown, protocol)

    def _change_services(
        self, before: dict[str, Service], after: dict[str, Service], command: Callable[[str], str]
    ) -> None:
        stopped = [name for name in after if after[name]["status"] == STOPPED]
        started = [name for name in after if after[name]["status"] == RUNNING]
        units = self.services.units()
        for name, row in after.items():
            old = before.get(name)
            if name in units or (old is None and name not in self.kept()["services"] and name != "sshd"):
                if old is None:
                    self.services.create(self._unit(name, command(name), row))
                elif (old["start"], old["depends"]) != (row["start"], row["depends"]):
                    self.services.record(self._unit(name, units[name].command, row))
            elif old is None or old != row:
                with self.changing() as kept:
                    kept["services"][name] = row
        for name in (*reversed(stopped), *started):
            status, old = after[name]["status"], before.get(name)
            if (old["status"] if old else STOPPED) == status:
                continue
            if name in self.services.units():
                if status == RUNNING and name in winservices.PRETENDED:
                    self.attempt(self.services.units()[name].command)
                (self.services.start if status == RUNNING else self.services.stop)(name)
            elif name in RESTARTS and status == RUNNING:
                self.restart(name)

    def _unit(self, name: str, command: str, row: Service) -> Unit:
        old = self.services.units().get(name)
        return Unit(
            name,
            command,
            tuple(one for one in row["depends"] if one != "hns"),
            old.recovery if old else (),
            automatic=row["start"] == "Automatic",
            pretence=name in winservices.PRETENDED,
            needs=winservices.NEEDS.get(name, ""),
        )

    def recommand(self, name: str, command: str) -> None:
        """Give an existing service another command."""
        unit = self.services.units()[name]
        row: Service = {"status": "", "start": "Automatic" if unit.automatic else "Manual", "depends": [*unit.depends]}
        self.services.create(self._unit(name, command, row))


def settle(config: Path, world: World) -> None:
    """Complete what waited for a start of the system; set services as their start type says."""
    node = Node(world, Manager(config / "standin-services.json"), config)
    with node.changing() as kept:
        kept["features"] = {name: INSTALLED if state == PENDING else state for name, state in kept["features"].items()}
        if kept["features"].get("Containers") == INSTALLED:
            kept["services"]["hns"]["start"] = "Automatic"
        for name, row in kept["services"].items():
            row["status"] = RUNNING if row["start"] == "Automatic" or name == "WinRM" else STOPPED


def _merge(kept: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Apply to *kept* what has changed from *before* to *after*."""
    for name in before:
        if name not in after:
            kept.pop(name, None)
    kept |= {name: row for name, row in after.items() if before.get(name) != row}


def _rows(
    kept: list[dict[str, Any]], before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The same for rows that have an ID."""
    merged = {row["ID"]: row for row in kept}
    _merge(merged, {row["ID"]: row for row in before}, {row["ID"]: row for row in after})
    return list(merged.values())
