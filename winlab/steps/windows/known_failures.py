"""What is known to stop Windows Setup, its first start and sysprep, told by what its logs say; and the cure.

Sources: Microsoft's documentation of Setup's and sysprep's errors, and public reports of predecessors' users
(facts in docs/windows.md, "When Setup stops").
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """A sign in a log, what it means, and what helps."""

    sign: str
    why: str
    cure: str


TRAPS = (
    Trap(
        r"0x80070103-0x40031",
        "The same driver is reachable on two media.",
        "Leave out what workers.extra_drivers and workers.drivers both have.",
    ),
    Trap(
        r"invalid product key|ProductKey>? setting|No images are available",
        "The product key does not fit the medium or the edition.",
        "Evaluation media take none; choose the edition with workers.edition, or give its key.",
    ),
    Trap(
        r"<ImageInstall> setting|could not find the image|selected image",
        "The medium has no image of the name that the answer file gives.",
        "'winlab iso inspect' lists its images; choose one with workers.edition.",
    ),
    Trap(
        r"no driver for|device drivers were found|disk \d+ does not exist|Install driver to show hardware",
        "Setup sees no disk: the driver for its bus is missing.",
        "Give the virtio-win ISO with workers.drivers, or take --set workers.bus=sata.",
    ),
    Trap(
        r"0x80042565|EFI partition|GPT disk|prepare the computer to boot into the next phase",
        "The partitions do not go with the machine's firmware.",
        "workers.firmware and a template of one's own must mean the same.",
    ),
    Trap(
        r"component or setting specified in the answer file|could not parse or process|answer file is invalid",
        "Setup does not take the answer file.",
        "A template of one's own (workers.template) has an element that Windows does not know, or in the wrong pass.",
    ),
    Trap(
        r"two answer files",
        "More than one answer file was found.",
        "Take other media with an Autounattend.xml out of the machine.",
    ),
    Trap(
        r"0x80070570|0x8007000D|0x80070017|file is corrupt",
        "The medium is damaged.",
        "Compare its SHA-256 with 'winlab iso inspect FILE --sha256', and get it again.",
    ),
    Trap(
        r"password policy",
        "Windows does not take the Administrator's password.",
        "Destroy the lab and create it anew: passwords are made afresh.",
    ),
    Trap(
        r"firewall takes no inbound rules",
        "Windows' firewall is told to block all incoming connections, whatever its rules say.",
        "Take that setting out of the template, the script or the policy that makes it; winlab's own rules let in only "
        "WinRM over HTTPS and ssh.",
    ),
    Trap(
        r"0x80073cf2",
        "An app is installed for one user only.",
        "Remove it with a script in workers.scripts.",
    ),
    Trap(
        r"senseGuid",
        "Defender for Endpoint stands in sysprep's way.",
        "Remove it with a script in workers.scripts.",
    ),
    Trap(
        r"RebootPending",
        "Windows waits for a restart.",
        "Run the same command again: it restarts Windows before it tries sysprep again.",
    ),
    Trap(
        r"0x8007001f",
        "This Windows was generalized too often already.",
        "Take a fresh medium.",
    ),
    Trap(
        r"0xC004F009|evaluation period",
        "The evaluation is over.",
        "Build the golden image anew: destroy the labs that stand on it, 'winlab image rm KEY', then create.",
    ),
)


def recognise(text: str) -> Trap | None:
    """The first known trap that shows in a log; None if none does."""
    return next((trap for trap in TRAPS if re.search(trap.sign, text, re.IGNORECASE)), None)
