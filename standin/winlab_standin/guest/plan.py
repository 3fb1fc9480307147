"""What Setup must do, by the windowsPE pass, compared with the machine. Pure: this touches nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from winlab_standin.guest.answer import AnswerError, Node, commands, component
from winlab_standin.guest.answer import number as integer
from winlab_standin.guest.releases import ENGLISH, Windows

SETUP = "Microsoft-Windows-Setup"
LOCALE = "Microsoft-Windows-International-Core-WinPE"
MIB = 1 << 20


@dataclass(frozen=True)
class Image:
    """An image of install.wim."""

    index: int
    name: str
    description: str
    windows: Windows = field(default_factory=Windows)


@dataclass(frozen=True)
class Partition:
    """A partition to make. ``size`` is in MiB; 0 means all that is free."""

    number: int
    kind: str  # EFI, MSR or Primary
    size: int
    format: str  # FAT32, NTFS or nothing
    label: str
    letter: str
    active: bool = False


@dataclass(frozen=True)
class Machine:
    """What Setup finds: the firmware, the disks' sizes in order (bytes), the images, whether it is evaluation media.

    ``blind``: the devices with disks for which it has no driver.
    """

    uefi: bool
    disks: tuple[int, ...]
    images: tuple[Image, ...]
    evaluation: bool
    blind: tuple[str, ...] = ()

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the media."""
        return self.images[0].windows.languages if self.images else (ENGLISH,)


@dataclass(frozen=True)
class Plan:
    """What Setup will do."""

    disk: int
    partitions: tuple[Partition, ...]
    target: int  # the partition that gets Windows
    image: Image
    windows: Windows  # what is installed

    def of(self, kind: str) -> Partition | None:
        """The first partition of a kind."""
        return next((item for item in self.partitions if item.kind == kind), None)


def _number(text: str, what: str) -> int:
    try:
        return integer(text)
    except ValueError:
        raise AnswerError(
            "The unattend answer file's <DiskConfiguration> or <ImageInstall> setting is not valid.",
            f"{what} is '{text}', not a number",
        ) from None


def _true(text: str) -> bool:
    return text.lower() in ("true", "1")


def make(root: Node, machine: Machine) -> Plan:
    """The plan that an answer file (already checked) makes for *machine*.

    :raises AnswerError: Setup would stop; the message is Setup's own.
    """
    setup = component(root, "windowsPE", SETUP)
    locale = component(root, "windowsPE", LOCALE)
    if not locale.value("SetupUILanguage/UILanguage"):
        raise AnswerError(
            "Windows Setup: Language to install, Time and currency format, Keyboard or input method: [Next]",
            f"{LOCALE}/SetupUILanguage/UILanguage is missing, so Setup asks",
        )
    asked = locale.value("SetupUILanguage/UILanguage")
    if language(asked, machine.languages) is None:
        raise AnswerError(
            "Windows Setup: Language to install: [Next]",
            f"the media have no language '{asked}'; theirs are {', '.join(machine.languages)}",
        )
    chosen = language(locale.value("UILanguage") or asked, machine.languages) or ENGLISH
    _check_key(setup, machine)
    image = _image(setup, machine)
    if not _true(setup.value("UserData/AcceptEula")):
        raise AnswerError(
            "Applicable notices and license terms. Please read these license terms. [ ] I accept the license terms.",
            "UserData/AcceptEula is not true, so Setup asks",
        )
    disk, partitions = _disk(setup, machine)
    installed = replace(image.windows, language=chosen)
    return Plan(disk, partitions, _target(setup, disk, partitions), image, installed)


def language(asked: str, there: tuple[str, ...]) -> str | None:
    """The language of those in *there* that *asked* means, in any case; None if it is not one of them."""
    return next((one for one in there if one.lower() == asked.lower()), None)


def first_commands(root: Node) -> list[str]:
    """What Setup runs before it looks at keys, images and disks.

    :raises AnswerError: the answer file has commands that run beside Setup, which the stand-in does not simulate.
    """
    setup = component(root, "windowsPE", SETUP)
    for command in commands(setup, "RunAsynchronous/RunAsynchronousCommand", "Path"):
        raise AnswerError("Windows Setup cannot continue. Setup will now close.", f"not played here: {command}")
    return commands(setup, "RunSynchronous/RunSynchronousCommand", "Path")


def _check_key(setup: Node, machine: Machine) -> None:
    key = setup.first("UserData/ProductKey/Key")
    if key is None:
        return
    if not key.text.strip():
        raise AnswerError(
            "The unattend answer file contains an invalid product key. Either remove the invalid key or provide a "
            "valid product key in the unattend answer file to proceed with Windows installation.",
            "UserData/ProductKey/Key is empty",
        )
    if machine.evaluation:
        raise AnswerError(
            "No images are available.",
            "UserData/ProductKey/Key is given; on evaluation media no image fits a product key",
        )


def _image(setup: Node, machine: Machine) -> Image:
    found = list(machine.images)
    items = setup.all("ImageInstall/OSImage/InstallFrom/MetaData")
    for item in items:
        key, value = item.value("Key").upper(), item.value("Value")
        field = {"/IMAGE/NAME": "name", "/IMAGE/INDEX": "index", "/IMAGE/DESCRIPTION": "description"}.get(key)
        found = [image for image in found if field and str(getattr(image, field)).lower() == value.lower()]
    if not items:
        raise AnswerError(
            "Select the operating system you want to install: [Next]",
            "ImageInstall/OSImage/InstallFrom names no image, so Setup asks",
        )
    if not found:
        wanted = ", ".join(f"{item.value('Key')} = {item.value('Value')}" for item in items)
        raise AnswerError(
            "Windows could not find the image that the unattend answer file's <ImageInstall> setting selects "
            "in the Windows image (.wim) file of the installation media.",
            f"{wanted}; the images are: {'; '.join(image.name for image in machine.images)}",
        )
    return found[0]


def _disk(setup: Node, machine: Machine) -> tuple[int, tuple[Partition, ...]]:
    disks = setup.all("DiskConfiguration/Disk")
    if not disks:
        raise AnswerError(
            "Where do you want to install Windows? [Next]", "DiskConfiguration names no disk, so Setup asks"
        )
    if len(disks) > 1:
        raise AnswerError(_disk_message(0), "the stand-in prepares one disk only, and the answer file names several")
    node = disks[0]
    number = _number(node.value("DiskID", "0"), "DiskID")
    if number >= len(machine.disks):
        raise AnswerError(
            _disk_message(number),
            f"disk {number} does not exist; there are {len(machine.disks)}"
            + "".join(f"; no driver for PCI\\VEN_{one.replace(':', '&DEV_')}" for one in machine.blind),
        )
    if not _true(node.value("WillWipeDisk")):
        raise AnswerError(_disk_message(number), "WillWipeDisk is not true: the stand-in installs on wiped disks only")
    made = []
    for index, item in enumerate(_ordered(node, "CreatePartitions/CreatePartition"), 1):
        kind = {"efi": "EFI", "msr": "MSR", "primary": "Primary"}.get(item.value("Type").lower(), item.value("Type"))
        if not kind:
            raise AnswerError(_disk_message(number), f"CreatePartition {item.value('Order')} has no Type")
        made.append(_partition(number, index, kind, item, node))
    _check_changes(number, made, _ordered(node, "ModifyPartitions/ModifyPartition"))
    _check_layout(number, made, machine)
    return number, tuple(made)


def _ordered(node: Node, path: str) -> list[Node]:
    return sorted(node.all(path), key=lambda item: _number(item.value("Order", "0"), "Order"))


def _disk_message(disk: int, code: str = "0x80042565") -> str:
    return (
        f"Windows could not create or modify a partition on disk {disk}. The error occurred while applying the "
        f"unattend answer file's <DiskConfiguration> setting. Error code: {code}"
    )


def _partition(disk: int, number: int, kind: str, item: Node, node: Node) -> Partition:
    extend, size = _true(item.value("Extend")), item.value("Size")
    if extend == bool(size):
        raise AnswerError(_disk_message(disk), f"partition {number}: give either Size or Extend")
    changes = [
        change
        for change in _ordered(node, "ModifyPartitions/ModifyPartition")
        if _number(change.value("PartitionID"), "PartitionID") == number
    ]
    change = changes[0] if changes else Node("ModifyPartition", "", {}, 0)
    return Partition(
        number,
        kind,
        0 if extend else _number(size, "Size"),
        change.value("Format").upper(),
        change.value("Label"),
        change.value("Letter").upper(),
        _true(change.value("Active")),
    )


def _check_changes(disk: int, made: list[Partition], changes: list[Node]) -> None:
    numbers = [_number(change.value("PartitionID"), "PartitionID") for change in changes]
    for number in numbers:
        if number > len(made) or number < 1:
            raise AnswerError(_disk_message(disk), f"ModifyPartition: there is no partition {number}")
        if numbers.count(number) > 1:
            raise AnswerError(_disk_message(disk), f"ModifyPartition: partition {number} comes twice")
    letters = [item.letter for item in made if item.letter]
    for item in made:
        if item.kind == "MSR" and item.format:
            raise AnswerError(_disk_message(disk), f"partition {item.number}: an MSR partition has no Format")
        if item.letter and not re.fullmatch("[A-Z]", item.letter):
            raise AnswerError(_disk_message(disk), f"partition {item.number}: Letter '{item.letter}' is not one letter")
        if item.letter and letters.count(item.letter) > 1:
            raise AnswerError(_disk_message(disk), f"partition {item.number}: Letter {item.letter} is given twice")


def _check_layout(disk: int, made: list[Partition], machine: Machine) -> None:
    (_check_gpt if machine.uefi else _check_mbr)(disk, made)
    if any(item.size == 0 for item in made[:-1]):
        raise AnswerError(_disk_message(disk), "only the last partition can have Extend")
    needed = sum(item.size for item in made) * MIB
    if needed > machine.disks[disk] - 2 * MIB:
        raise AnswerError(_disk_message(disk, "0x80042414"), f"the partitions need {needed} bytes, the disk is smaller")


def _check_gpt(disk: int, made: list[Partition]) -> None:
    kinds = [item.kind for item in made]
    if "Extended" in kinds or "Logical" in kinds:
        raise AnswerError(_disk_message(disk), "a GPT disk has no extended or logical partitions")
    if any(item.active for item in made):
        raise AnswerError(_disk_message(disk), "a GPT disk has no active partition")
    efi = [item for item in made if item.kind == "EFI"]
    if not efi:
        raise AnswerError(
            "Windows could not prepare the computer to boot into the next phase of installation.",
            "this computer starts by UEFI, and no EFI partition is created",
        )
    if efi[0].format != "FAT32" or 0 < efi[0].size < 100:
        raise AnswerError(_disk_message(disk), "the EFI partition must be FAT32 and have 100 MB or more")


def _check_mbr(disk: int, made: list[Partition]) -> None:
    kinds = [item.kind for item in made]
    if "EFI" in kinds or "MSR" in kinds:
        raise AnswerError(
            _disk_message(disk),
            "a partition of type EFI or MSR needs a GPT disk, and this computer started from a BIOS (MBR)",
        )
    if set(kinds) != {"Primary"} or len(made) > 4:
        raise AnswerError(_disk_message(disk), "the stand-in makes one to four primary partitions on an MBR disk")
    active = [item for item in made if item.active]
    if len(active) != 1 or active[0].number != 1 or active[0].format != "NTFS":
        raise AnswerError(
            "Windows could not prepare the computer to boot into the next phase of installation.",
            "this computer starts by a BIOS, and no NTFS partition is active, or it is not the first",
        )


def _target(setup: Node, disk: int, partitions: tuple[Partition, ...]) -> int:
    node = setup.first("ImageInstall/OSImage/InstallTo")
    if node is None:
        raise AnswerError("Where do you want to install Windows? [Next]", "InstallTo is missing, so Setup asks")
    to_disk, number = _number(node.value("DiskID"), "DiskID"), _number(node.value("PartitionID"), "PartitionID")
    found = next((item for item in partitions if item.number == number), None)
    if to_disk != disk or found is None:
        raise AnswerError(
            f"The partition selected for the installation ({number}) does not exist on disk {to_disk}. Make sure the "
            "unattend answer file's <ImageInstall> setting refers to a valid partition and restart the installation.",
            "InstallTo names a partition that DiskConfiguration does not create",
        )
    if found.kind != "Primary" or found.format != "NTFS":
        raise AnswerError(
            f"Windows can't be installed to disk {to_disk} partition {number}. The partition must be formatted NTFS.",
            f"partition {number} is {found.kind} with format '{found.format}'",
        )
    return number


def computer_name(text: str, random: str) -> str:
    """The computer's name; ``*`` gives *random*.

    :raises AnswerError: more than 15 bytes, only digits, empty, or a character that is not allowed.
    """
    if text == "*":
        return random
    bad = set(text) & set("{|}~[\\]^':;<=>?@!\"#$%`()+/.,*& ")
    if not text or len(text.encode()) > 15 or text.isdigit() or bad:
        raise AnswerError(
            "Windows could not parse or process the unattend answer file for pass [specialize]. The settings specified "
            "in the answer file cannot be applied. The error was detected while processing settings for component "
            "[Microsoft-Windows-Shell-Setup].",
            f"ComputerName '{text}' is empty, longer than 15 bytes, only digits, or has a forbidden character",
        )
    return text
