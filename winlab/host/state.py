"""What this host's programs and daemons report about themselves, verbatim: for people who diagnose a failure."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from winlab.host import fabric
from winlab.host.facts import find_emulator_version
from winlab.run import run

RELEASE = Path("/etc/os-release")
LOGS = (Path("/var/log/ovn"), Path("/var/log/openvswitch"))
QEMU_LOGS = Path("/var/log/libvirt/qemu")
FIRMWARE = ("dpkg-query", "--show", "--showformat=${Version}", "ovmf")  # OVMF itself has no version to ask for
LIMIT = 10.0  # seconds for a program
PORTS = ("--columns=name,ofport,error,admin_state,link_state,mtu,external_ids,statistics", "list", "Interface")
BOUND = ("--columns=logical_port,type,chassis,up,mac,options,external_ids", "list", "Port_Binding")


def versions() -> dict[str, str]:
    """What this host runs winlab with: kernel, distribution, Python and its packages, QEMU, OVMF, Open vSwitch, OVN.

    What can't be found out is left out.
    """
    made = {"kernel": f"{platform.system()} {platform.release()} {platform.version()} {platform.machine()}"}
    try:
        lines = (line.partition("=") for line in RELEASE.read_text(encoding="utf-8").splitlines())
        made["distribution"] = {name: value.strip('"') for name, _, value in lines}.get("PRETTY_NAME", "")
    except OSError:
        pass
    made["Python"] = platform.python_version()
    made |= _packages()
    made["QEMU"] = find_emulator_version()
    for name, program in (("Open vSwitch", "ovs-vsctl"), ("OVN", "ovn-nbctl")):
        try:
            made[name] = run([program, "--version"], timeout=LIMIT).stdout.partition("\n")[0]
        except Exception:  # noqa: S112 - not installed, or it does not work; doctor says which
            continue
    with suppress(Exception):  # another distribution; the domain's XML has the file's path
        made["OVMF"] = run(FIRMWARE, timeout=LIMIT).stdout.strip()
    return {name: text for name, text in made.items() if text}


def _packages() -> dict[str, str]:
    """The versions of the Python packages that winlab needs; empty if it was not installed as one itself."""
    made = {}
    try:
        for requirement in metadata.requires("winlab") or ():
            if "extra ==" not in requirement:
                name = re.split("[^A-Za-z0-9_.-]", requirement)[0]
                made[f"Python: {name}"] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
    return made


def switch() -> str:
    """The host's virtual switch: its bridges and ports.

    :raises WinlabError: it can't be asked; only root may.
    """
    return "\n".join(fabric.vsctl(*words).stdout for words in (("show",), ("list", "Open_vSwitch"), PORTS))


def southbound() -> str:
    """What OVN made of the northbound database: its chassis, and which of them has which port.

    :raises WinlabError: it can't be asked; only root may.
    """
    command = ["ovn-sbctl", f"--db={fabric.SB}", "--no-leader-only", f"--timeout={LIMIT:.0f}"]
    return "\n".join(run([*command, *words], timeout=2 * LIMIT).stdout for words in (("show",), BOUND))
