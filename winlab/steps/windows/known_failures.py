"""The known failures of Windows Setup, its first start and sysprep, recognised by their logs; and the cures.

Sources: Microsoft's documentation of Setup's and sysprep's errors, and public reports of predecessors' users
(facts in docs/windows.md, "When Setup stops").
"""

from __future__ import annotations

import re

from winlab.steps.interface import KnownFailure

KNOWN = (
    KnownFailure(
        r"ExecuteUnattendDriverInstall|0x80070103|0xD000A000|0x40031",
        "A driver does not install in Windows PE, and Setup of Windows Server 2025 ends at the first one.",
        "Leave out workers.extra_drivers, or use --set workers.bus=sata, which needs no driver in Windows PE.",
    ),
    KnownFailure(
        r"0x80070001 *- *0x40030",
        "A command of the windowsPE pass failed, and Setup of Windows Server 2025 ends at the first one.",
        "Let the commands in your own template (workers.template) end with '& exit /b 0'.",
    ),
    KnownFailure(
        r"0x80220005",
        "A value in the answer file is too long: a Path over 259 characters, or a computer name over 15.",
        "Shorten it in your own template (workers.template).",
    ),
    KnownFailure(
        r"0x80070002 *- *0x40030",
        "Setup could not lay out the disk as the answer file says.",
        "Leave DiskConfiguration in your own template (workers.template) as it is in winlab's; attach no USB disk.",
    ),
    KnownFailure(
        r"0x8007000D",
        "A value in the answer file is invalid, such as an Order with gaps; or the medium is damaged.",
        "Check your own template (workers.template), and the medium with 'winlab iso inspect FILE --sha256'.",
    ),
    KnownFailure(
        r"invalid product key|ProductKey>? setting|No images are available",
        "The product key does not fit the medium or the edition.",
        "Evaluation media take none; choose the edition with workers.edition, or give its key.",
    ),
    KnownFailure(
        r"<ImageInstall> setting|could not find the image|selected image",
        "The medium has no image of the name that the answer file gives.",
        "'winlab iso inspect' lists its images; choose one with workers.edition.",
    ),
    KnownFailure(
        r"no driver for|device drivers were found|disk \d+ does not exist|Install driver to show hardware",
        "Setup sees no disk: the driver for its bus is missing.",
        "Give the virtio-win ISO with workers.drivers, or use --set workers.bus=sata.",
    ),
    KnownFailure(
        r"0x80042565|EFI partition|GPT disk|prepare the computer to boot into the next phase",
        "The partitions do not fit the machine's firmware.",
        "workers.firmware and your own template (workers.template) must use the same firmware.",
    ),
    KnownFailure(
        r"component or setting specified in the answer file|could not parse or process|answer file is invalid",
        "Setup rejects the answer file.",
        "Your own template (workers.template) has an element that Windows does not know, or has it in the wrong pass.",
    ),
    KnownFailure(
        r"two answer files",
        "More than one answer file was found.",
        "Remove other media with an Autounattend.xml from the machine.",
    ),
    KnownFailure(
        r"0x80070570|0x80070017|file is corrupt",
        "The medium is damaged.",
        "Check its SHA-256 with 'winlab iso inspect FILE --sha256', and download it again.",
    ),
    KnownFailure(
        r"password policy",
        "Windows rejects the Administrator's password.",
        "Destroy the lab and create it again: it gets new passwords.",
    ),
    KnownFailure(
        r"firewall takes no inbound rules",
        "Windows' firewall is set to block all incoming connections, whatever its rules say.",
        "Remove that setting from the template, script or policy that makes it; winlab's own rules allow only "
        "WinRM over HTTPS and ssh.",
    ),
    KnownFailure(
        r"0x80073cf2",
        "An app is installed for one user only.",
        "Remove it with a script in workers.scripts.",
    ),
    KnownFailure(
        r"senseGuid",
        "Defender for Endpoint blocks sysprep.",
        "Remove it with a script in workers.scripts.",
    ),
    KnownFailure(
        r"RebootPending",
        "A restart of Windows is pending.",
        "Run the same command again: it restarts Windows before it runs sysprep again.",
    ),
    KnownFailure(
        r"0x8007001f",
        "This Windows was generalized too often.",
        "Use a fresh medium.",
    ),
    KnownFailure(
        r"0xC004F009|evaluation period",
        "The evaluation has expired.",
        "Build a new golden image: destroy the labs that are based on it, 'winlab image rm KEY', then create.",
    ),
)


def recognise(text: str) -> KnownFailure | None:
    """The first known failure that a log shows; None if it shows none."""
    return next((one for one in KNOWN if re.search(one.pattern, text, re.IGNORECASE)), None)
