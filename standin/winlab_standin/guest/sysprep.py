"""Simulates sysprep: seal.ps1 generalizes and switches off; the clone looks for its own answer file.

What Windows does is documented ("Sysprep (Generalize) a Windows installation", "Windows Setup Automation Overview"):
generalize removes name, accounts and identity. The next start runs specialize and oobeSystem, for which Setup searches
an answer file again: cached ones first, then removable media by drive letter. It looks for the name Unattend.xml,
because the other name is for windowsPE and offlineServicing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from winlab_standin.guest import answer, cmdline, node
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.players import feature_state, joined

STATE_FILE = "standin-state.json"  # of installed.State, in the folder of Windows' registry
SWITCH_OFF = 20.0  # seconds from the start of sysprep: long enough for winlab to ask meanwhile
GENERALIZED = "generalized"
LOG_LINE = "BiUpdateEfiEntry failed c000000d"
APP_LINES = (  # antifob/incus-windows#28, vmware/ansible-vsphere-gos-validation#596
    "SYSPRP Package {}_1.0 was installed for a user, but not provisioned for all users. This package will not function "
    "properly in the sysprep image.\r\nSYSPRP Failed to remove apps for the current user: 0x80073cf2."
)
UNATTEND = "unattend.xml"
# What sysprep removes: the account's password, the network's settings, keys and certificates
IDENTITY = (
    "Windows/System32/config/standin-sam.json",
    "Windows/System32/config/standin-mtu",
    "Windows/System32/config/standin-winrm.crt",
    "Windows/System32/config/standin-winrm.key",
)
# And what seal.ps1 removes before that
TRACES = (
    "ProgramData/ssh/administrators_authorized_keys",
    "Users/Administrator/.ssh/authorized_keys",
    "winlab/ready.txt",
    "winlab/bootstrap.log",
    "Windows/Panther/setupact.log",
    "Windows/Panther/setuperr.log",
    "Windows/Panther/unattend.xml",
    "Windows/Panther/unattend-original.xml",
)


def seal(machine: Machine, given: Settings) -> dict[str, Any]:
    """seal.ps1: clean up, generalize, switch off; none of that while a restart is pending, or without ``begin``."""
    text = str(given.get("generalize", ""))
    if not text.strip():
        raise ScriptError("settings.generalize is empty: it must be the text of an answer file.")
    if given.get("superseded"):
        raise ScriptError("dism.exe : the stand-in has no component store that could be cleaned")
    if joined(machine):
        raise ScriptError("This node has joined a cluster: what is made of it would carry its identity.")
    if feature_state(machine) == "pending":
        return {"restart": True}
    confirm(text.encode())
    if given.get("begin"):
        _seal(machine)
    build = machine.world.windows.build
    return {"restart": False, "build": build, "evaluation_minutes": node.EVALUATION, "rearms": 5}


def confirm(text: bytes) -> None:
    """Refuse an answer file that sysprep refuses, or that would harm the clones.

    :raises ScriptError: it is one of these.
    """
    try:
        root = answer.parse(text, r"C:\winlab\generalize.xml", "generalize")
        if answer.passes(root) != {"generalize"}:
            raise ScriptError("the answer file has other passes than generalize, and would outrank the clones' own")
        answer.check(root, "generalize", r"C:\winlab\generalize.xml")
    except AnswerError as error:
        raise ScriptError(f"sysprep.exe : {error} ({error.detail})") from error


def _seal(machine: Machine) -> None:
    machine.tell("winlab: cleaning up")
    for name in ("kube-proxy", "kubelet", "containerd"):
        if machine.services.state(name) == "running":
            machine.services.stop(name)
    ssh = [*(machine.root / "ProgramData/ssh").glob("ssh_host_*")]
    for path in (*ssh, *(machine.c(name) for name in TRACES)):
        path.unlink(missing_ok=True)
    for app in machine.node.apps():
        machine.tell(f"winlab: removing the app {app}")
        try:
            machine.node.remove_app(app)
        except OSError as error:
            machine.tell(f"winlab: it stays: {error}")
    machine.tell("winlab: starting sysprep")
    generalize(machine)


def generalize(machine: Machine) -> None:
    """Do what sysprep does: remove the identity, log that, and switch the machine off. With an app of one user, log
    that it refuses, and change nothing."""
    folder = machine.c("Windows/System32/Sysprep")
    (folder / "Panther").mkdir(parents=True, exist_ok=True)
    log = folder / "Panther/setuperr.log"
    if apps := machine.node.apps():
        log.write_text("".join(f"{APP_LINES.format(app)}\r\n" for app in apps), encoding="utf-8")
        return
    for name in IDENTITY:
        machine.c(name).unlink(missing_ok=True)
    (machine.config / STATE_FILE).write_text(json.dumps({"phase": GENERALIZED}))
    (folder / "Sysprep_succeeded.tag").touch()
    # the log of a successful run has such lines, too
    log.write_text(f"{LOG_LINE}\r\n", encoding="utf-8")
    machine.world.settle()
    machine.world.power("poweroff", SWITCH_OFF)


def run(machine: Machine, command: str) -> None:
    """Do what ``sysprep.exe`` does with the arguments of *command*, as far as seal.ps1 uses them.

    If sysprep refuses, its log says why, and Windows is unchanged.
    """
    words = cmdline.split(command)
    given = {word.lower().partition(":")[0]: word.partition(":")[2] for word in words[1:]}
    log = machine.c("Windows/System32/Sysprep/Panther/setuperr.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    path = machine.world.drives.real(given.get("/unattend", ""))
    try:
        if not {"/generalize", "/oobe", "/shutdown", "/quiet", "/mode", "/unattend"} == given.keys():
            raise ScriptError(f"sysprep.exe : the stand-in takes seal.ps1's arguments alone, not {command}")
        if path is None or not path.is_file():
            raise ScriptError(f"sysprep.exe : there is no file {given['/unattend']}")
        confirm(path.read_bytes())
    except ScriptError as error:
        log.write_text(f"{error}\r\n", encoding="utf-8")
        return
    generalize(machine)


def sealed(machine: Machine, given: Settings) -> dict[str, Any]:
    """sealed.ps1: how far sysprep is; here sysprep needs a few seconds."""
    del given
    path = machine.config / STATE_FILE
    phase = json.loads(path.read_text()).get("phase") if path.is_file() else None
    state = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE" if phase == GENERALIZED else "IMAGE_STATE_COMPLETE"
    log = machine.c("Windows/System32/Sysprep/Panther/setuperr.log")
    errors = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return {"running": False, "state": state, "succeeded": phase == GENERALIZED, "errors": errors}


def updates(machine: Machine, given: Settings) -> dict[str, Any]:
    """updates.ps1: the stand-in has no updates."""
    del given
    machine.tell("winlab: looking for updates")
    return {"installed": [], "failed": [], "restart": False}


PLAYERS: dict[str, Player] = {"seal.ps1": seal, "sealed.ps1": sealed, "updates.ps1": updates}


def clone_answers(discs: Sequence[Path]) -> bytes | None:
    """The answer file for a clone's first start, from the roots of CDs in the order of their letters; None if no file
    has settings for it.

    :raises AnswerError: Windows would take a file that is for an installation: its disks and names are those of
        another machine.
    """
    for path in answer.candidates([], discs, None):
        if "windowsPE" in answer.passes(answer.parse(path.read_bytes(), str(path), "specialize")):
            raise AnswerError(
                "The computer restarted unexpectedly or encountered an unexpected error.",
                f"{path.name} on the CD is for an installation (it has the pass windowsPE): it was left in the drive",
            )
    found = answer.find(answer.candidates([], discs, None, UNATTEND), "specialize")
    if found is None:
        return None
    answer.refuse_second(found[0], answer.candidates([], discs, None, UNATTEND), "specialize")
    return found[0].read_bytes()
