"""Programs that winlab's scripts start: those on the drives, under Wine, and some of Windows' own.

What Wine can't do is left out if it does not matter: unpacking layers, which needs Windows' own file systems. If it
matters, this module does it: recovery actions, which Wine accepts but never carries out (winservices.py).
"""

from __future__ import annotations

import ipaddress
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from winlab_standin.guest import cmdline, driverstore, netcommands, players, registry, routes, syscommands, wine
from winlab_standin.guest.base import StandinError, run
from winlab_standin.guest.machine import Machine
from winlab_standin.guest.node import Node
from winlab_standin.guest.winservices import Manager, Unit

if TYPE_CHECKING:
    from winlab_standin.guest.shell import Shell, Streams

SERVICES = "standin-services.json"  # in System32\\config
STARTS = {"auto": "Automatic", "demand": "Manual", "disabled": "Disabled"}
NO_SERVICE = 1060  # ERROR_SERVICE_DOES_NOT_EXIST
NO_PROGRAM = 193  # ERROR_BAD_EXE_FORMAT
NOTHING_NEW = 259  # ERROR_NO_MORE_ITEMS, which pnputil ends with if a driver is already installed
# S-1-16-12288: high integrity, of administrators whose token is not filtered
GROUPS = "Mandatory Label\\High Mandatory Level  Label  S-1-16-12288\r\n"


def on_drive(machine: Machine, real: Path, shown: str, line: str, search: str, streams: Streams) -> int:
    """Run a program on a drive; returns its exit code. *search*: an addition to PATH.

    :raises ScriptError: containerd, which the program needs, does not answer.
    """
    with real.open("rb") as file:
        if file.read(2) != b"MZ":
            streams.err("The specified executable is not a valid application for this OS platform.\r\n")
            return NO_PROGRAM
    name, words = real.name.lower(), cmdline.split(line)
    if name == "ctr.exe" and "import" in words:
        words.insert(words.index("import") + 1, "--no-unpack")
    if name == "kubeadm.exe":
        # On Wine the first client of a pipe may be cut off, and kubeadm.exe tries only once
        players.wait_for_cri(machine)
    code = wine.pass_through([shown, *words], lambda text: streams.out(f"{text}\r\n"), search)
    if name == "containerd.exe" and "--register-service" in words and not code:
        command = wine.query(r"HKLM\SYSTEM\CurrentControlSet\Services\containerd", "ImagePath")
        machine.services.record(Unit("containerd", command))
    return code


def _node(shell: Shell) -> Node:
    config = shell.world.drives.letters["C"] / "Windows/System32/config"
    return Node(shell.world, Manager(config / SERVICES), config)


def sc(shell: Shell, rest: str, streams: Streams) -> int:
    """``sc config NAME start= ...``, ``sc failure``, ``sc failureflag``; anything else as :func:`syscommands.sc`."""
    words = cmdline.split(rest)
    verb = words[0].lower() if words else ""
    if verb not in ("config", "failure", "failureflag"):
        return syscommands.sc(shell, rest, streams)
    node = _node(shell)
    units, kept = node.services.units(), node.kept()["services"]
    name = next((one for one in (*units, *kept) if len(words) > 1 and one.lower() == words[1].lower()), None)
    if name is None:
        streams.out("[SC] OpenService FAILED 1060:\r\n\r\n")
        streams.out("The specified service does not exist as an installed service.\r\n\r\n")
        return NO_SERVICE
    options = dict(zip(words[2::2], words[3::2], strict=False))
    if verb == "config" and set(options) == {"start="} and options["start="] in STARTS:
        _set_start(node, name, STARTS[options["start="]])
        if name == "WinRM" and options["start="] == "auto":
            shell.world.registry.add(registry.WINRM, registry.DELAYED, "REG_DWORD", "0")
        streams.out("[SC] ChangeServiceConfig SUCCESS\r\n")
        return 0
    actions = options.get("actions=", "").split("/")
    if verb == "failure" and actions[::2] == ["restart"] * (len(actions) // 2) and name in units:
        delays = tuple(int(text) / 1000 for text in actions[1::2])
        node.services.record(replace(units[name], recovery=delays))
    elif verb != "failureflag":
        streams.err(f"ERROR:  Unrecognized command (the stand-in knows no such 'sc {verb}')\r\n")
        return 1639
    streams.out("[SC] ChangeServiceConfig2 SUCCESS\r\n")
    return 0


def _set_start(node: Node, name: str, start: str) -> None:
    units = node.services.units()
    if name in units:
        node.services.record(replace(units[name], automatic=start == "Automatic"))
        return
    with node.changing() as kept:
        kept["services"][name]["start"] = start


def netsh(shell: Shell, rest: str, streams: Streams) -> int:
    """``netsh interface ipv4 set subinterface NUMBER mtu=N store=persistent``, ``... set dynamicportrange``, ``netsh
    winhttp set proxy``; anything else as :func:`netcommands.netsh`."""
    words = [word.lower() for word in cmdline.split(rest)]
    if words[:3] in (["winhttp", "set", "proxy"], ["winhttp", "reset", "proxy"]):
        return 0  # nothing here uses WinHTTP
    if words[:3] != ["interface", "ipv4", "set"]:
        return netcommands.netsh(shell, rest, streams)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if words[3:4] == ["dynamicportrange"] and {"startport", "numberofports"} <= given.keys():
        first, count = int(given["startport"]), int(given["numberofports"])
        if first + count > 65536:
            streams.out("The parameter is incorrect.\r\n\r\n")
            return 1
        streams.out("Ok.\r\n\r\n")
        return 0
    rows = _node(shell).state()["adapters"]
    adapters = shell.world.adapters()
    at = next((at for at, row in enumerate(rows) if words[4:5] in ([str(row["ifIndex"])], [row["name"].lower()])), None)
    if words[3:4] != ["subinterface"] or at is None or not given.get("mtu", "").isdigit():
        streams.out("The filename, directory name, or volume label syntax is incorrect.\r\n\r\n")
        return 1
    run(["ip", "link", "set", "dev", adapters[at].name, "mtu", given["mtu"]])
    if given.get("store", "persistent") == "persistent":  # the default
        config = shell.world.drives.letters["C"] / "Windows/System32/config"
        (config / "standin-mtu").write_text(f"{given['mtu']}\n")
    streams.out("Ok.\r\n\r\n")
    return 0


def whoami(shell: Shell, rest: str, streams: Streams) -> int:
    """``whoami``, ``whoami /groups``."""
    if rest.strip().lower() != "/groups":
        return syscommands.whoami(shell, rest, streams)
    streams.out(GROUPS)
    return 0


def icacls(shell: Shell, rest: str, streams: Streams) -> int:
    """``icacls FILE /inheritance:r /grant SID:F ...``: the volume has no such rights; the file must exist."""
    words = cmdline.split(rest)
    path = _path(shell, words[0]) if words else None
    if path is None or not path.exists():
        streams.err(f"{words[0] if words else ''}: The system cannot find the file specified.\r\n")
        streams.out("Successfully processed 0 files; Failed processing 1 files\r\n")
        return 2
    streams.out(f"processed file: {words[0]}\r\nSuccessfully processed 1 files; Failed processing 0 files\r\n")
    return 0


def _path(shell: Shell, text: str) -> Path | None:
    return Path(text) if text.startswith("/") else shell.path(text)


def pnputil(shell: Shell, rest: str, streams: Streams) -> int:
    """``pnputil /add-driver FILE /install``: the driver's devices are known from then on."""
    words = cmdline.split(rest)
    path = _path(shell, words[1]) if len(words) == 3 else None
    if [word.lower() for word in (words[:1] + words[2:])] != ["/add-driver", "/install"] or path is None:
        streams.err("Invalid usage (the stand-in's pnputil knows '/add-driver FILE /install').\r\n")
        return 1
    root = shell.world.drives.letters["C"]
    before = driverstore.known(root)
    try:
        driverstore.stage([driverstore.read(path)], root)
    except (OSError, StandinError) as error:
        streams.out(f"Failed to add driver package: {error}\r\n")
        return 2
    streams.out(f"Adding driver package:  {path.name}\r\nDriver package added successfully.\r\n")
    return 0 if driverstore.known(root) - before else NOTHING_NEW


def route(shell: Shell, rest: str, streams: Streams) -> int:
    """``route -p ADD NETWORK MASK MASK GATEWAY``, ``route -p DELETE NETWORK MASK MASK GATEWAY``, ``route print``."""
    words = [word.lower() for word in cmdline.split(rest) if word.lower() != "-p"]
    config = shell.world.drives.letters["C"] / "Windows/System32/config"
    if words == ["print"]:
        rows = [f"{to:>20} {via:>16}\r\n" for to, via in routes.kept(config).items()]
        streams.out(f"Persistent Routes:\r\n{''.join(rows)}")
        return 0
    try:
        verb, network, _, mask, via = words
        to = str(ipaddress.IPv4Network(f"{network}/{mask}"))
        kept = routes.kept(config)
        if verb == "add":
            routes.have({to: via}, [])
            routes.keep(config, kept | {to: via})
        elif verb == "delete":
            routes.have({}, [to])
            routes.keep(config, {one: other for one, other in kept.items() if one != to})
        else:
            raise ValueError(verb)
    except (ValueError, StandinError) as error:
        streams.err(f"The route {' '.join(words[:1])} failed: {error}\r\n")
        return 1
    streams.out(" OK!\r\n")
    return 0


def tar(shell: Shell, rest: str, streams: Streams) -> int:
    """``tar -tf FILE``, ``tar -xOf FILE NAME``."""
    words = cmdline.split(rest)
    path = _path(shell, words[1]) if len(words) > 1 else None
    if path is None or (words[0], len(words)) not in (("-tf", 2), ("-xOf", 3)):
        streams.err("tar.exe: the stand-in knows '-tf FILE' and '-xOf FILE NAME'\r\n")
        return 1
    try:
        with tarfile.open(path) as archive:
            if words[0] == "-tf":
                streams.out("".join(f"{name}\r\n" for name in archive.getnames()))
            else:
                file = archive.extractfile(words[2])
                streams.out(file.read().decode("utf-8", "replace") if file else "")
    except (OSError, KeyError, tarfile.TarError) as error:
        streams.err(f"tar.exe: Error opening archive: {error}\r\n")
        return 1
    return 0


def dism(shell: Shell, rest: str, streams: Streams) -> int:
    """``dism``: refused, because there is no component store to clean."""
    del shell, rest
    streams.out("\r\nError: 87\r\n\r\nThe stand-in has no component store that could be cleaned.\r\n")
    return 87


PROGRAMS: dict[str, Callable[[Shell, str, Streams], int]] = {
    "dism": dism,
    "icacls": icacls,
    "netsh": netsh,
    "pnputil": pnputil,
    "route": route,
    "sc": sc,
    "tar": tar,
    "whoami": whoami,
}
