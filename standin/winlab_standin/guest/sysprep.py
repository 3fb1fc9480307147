"""sysprep's life cycle, played: seal.ps1 generalizes and switches off; the clone looks for its own answer file.

What Windows does is documented ("Sysprep (Generalize) a Windows installation", "Windows Setup Automation Overview"):
generalize takes name, accounts and identity away; the next start runs specialize and oobeSystem, for which Setup
searches an answer file anew, cached ones first, then removable media by drive letter, by the name Unattend.xml: the
other name is for windowsPE and offlineServicing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from winlab_standin.guest import answer
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.players import feature_state, joined

STATE_FILE = "standin-state.json"  # of installed.State, in the folder of Windows' registry
EVALUATION = 180 * 24 * 60  # minutes
SWITCH_OFF = 20.0  # seconds from the start of sysprep: long enough to be asked meanwhile
GENERALIZED = "generalized"
UNATTEND = "unattend.xml"
# What a clone must not have: the account's password, the network's settings, keys and certificates
IDENTITY = (
    "Windows/System32/config/standin-sam.json",
    "Windows/System32/config/standin-mtu",
    "Windows/System32/config/standin-winrm.crt",
    "Windows/System32/config/standin-winrm.key",
    "winlab/ready.txt",
    "winlab/bootstrap.log",
    "Windows/Panther/setupact.log",
    "Windows/Panther/setuperr.log",
    "Windows/Panther/unattend.xml",
    "Windows/Panther/unattend-original.xml",
)


def seal(machine: Machine, given: Settings) -> dict[str, Any]:
    """seal.ps1: clean up, generalize, switch off; nothing of that while a restart is due, or before it is to begin."""
    text = str(given.get("generalize", ""))
    if not text.strip():
        raise ScriptError("settings.generalize is empty: it must be the text of an answer file.")
    if given.get("superseded"):
        raise ScriptError("dism.exe : the stand-in has no component store that could be cleaned")
    if joined(machine):
        raise ScriptError("This node has joined a cluster: what is made of it would carry its identity.")
    if feature_state(machine) == "pending":
        return {"restart": True}
    try:
        root = answer.parse(text.encode(), r"C:\winlab\generalize.xml", "generalize")
        if answer.passes(root) != {"generalize"}:
            raise ScriptError("the answer file has other passes than generalize, and would outrank the clones' own")
        answer.check(root, "generalize", r"C:\winlab\generalize.xml")
    except AnswerError as error:
        raise ScriptError(f"sysprep.exe : {error} ({error.detail})") from error
    if given.get("begin"):
        _generalize(machine)
    build = machine.world.windows.build
    return {"restart": False, "build": build, "evaluation_minutes": EVALUATION, "rearms": 5}


def _generalize(machine: Machine) -> None:
    machine.tell("winlab: cleaning up")
    for name in ("kube-proxy", "kubelet", "containerd"):
        if machine.services.state(name) == "running":
            machine.services.stop(name)
    ssh = [*(machine.root / "ProgramData/ssh").glob("ssh_host_*")]
    for path in (*ssh, *(machine.c(name) for name in IDENTITY)):
        path.unlink(missing_ok=True)
    machine.tell("winlab: starting sysprep")
    (machine.config / STATE_FILE).write_text(json.dumps({"phase": GENERALIZED}))
    machine.world.settle()
    machine.world.power("poweroff", SWITCH_OFF)


def sealed(machine: Machine, given: Settings) -> dict[str, Any]:
    """sealed.ps1: how far sysprep is; here it needs a few seconds."""
    del given
    path = machine.config / STATE_FILE
    phase = json.loads(path.read_text()).get("phase") if path.is_file() else None
    state = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE" if phase == GENERALIZED else "IMAGE_STATE_COMPLETE"
    # the log of a successful run has such lines, too
    errors = ["BiUpdateEfiEntry failed c000000d"] if phase == GENERALIZED else []
    return {"running": False, "state": state, "succeeded": phase == GENERALIZED, "errors": errors}


def updates(machine: Machine, given: Settings) -> dict[str, Any]:
    """updates.ps1: there are none for the stand-in."""
    del given
    machine.tell("winlab: looking for updates")
    return {"installed": [], "failed": [], "restart": False}


PLAYERS: dict[str, Player] = {"seal.ps1": seal, "sealed.ps1": sealed, "updates.ps1": updates}


def clone_answers(discs: Sequence[Path]) -> bytes | None:
    """The answer file for a clone's first start, from the roots of CDs in the order of their letters; None if none has
    settings for it.

    :raises AnswerError: a file that Windows would take, and that is for an installation: its disks and names are those
        of another machine.
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
