"""The partition plan."""

import re

from answerfile.checks import Checks


class Disks(Checks):
    """Checks of disks, partitions, and where Windows goes."""

    def check_disks(self, setup):
        disks = {}
        for component in setup:
            for disk in component.all("DiskConfiguration/Disk"):
                plan = self.check_disk(disk)
                disks[disk.value("DiskID")] = plan
        letters = {}
        for plan in disks.values():
            for part in plan["parts"].values():
                letter = part["letter"].upper()
                if letter and letter in letters:
                    self.report(
                        part["modify"], "E516", f"drive letter {letter} is already used at line {letters[letter]}"
                    )
                elif letter:
                    letters[letter] = part["modify"].line
        for component in setup:
            for image in component.all("ImageInstall/OSImage"):
                self.check_target(image, disks)
                target = image.one("InstallTo")
                if target is not None and target.value("DiskID") in disks:
                    self.check_boot(target.value("DiskID"), disks)

    @staticmethod
    def number(text):
        return int(text) if re.fullmatch(r"\d+", text) else None

    def check_disk(self, disk):
        """Check one disk; return its plan: parts by number, whether that list is complete."""
        created = sorted(disk.all("CreatePartitions/CreatePartition"), key=lambda n: self.number(n.value("Order")) or 0)
        wiped = disk.value("WillWipeDisk").lower() == "true"
        if created and not wiped:
            self.report(
                disk,
                "W517",
                "partitions are created, but WillWipeDisk is not true: the partition numbers "
                "depend on what is on the disk",
            )
        parts, number = {}, 0
        for node in created:
            kind = node.value("Type")
            if kind.lower() != "extended":  # extended partitions are not counted
                number += 1
            part = {
                "node": node,
                "type": kind.lower(),
                "size": self.number(node.value("Size")),
                "modify": node,
                "letter": "",
                "format": "",
                "active": False,
            }
            parts[number if kind.lower() != "extended" else f"extended{len(parts)}"] = part
            extend, has_size = node.value("Extend").lower() == "true", node.one("Size") is not None
            if not kind:
                self.report(node, "E310", "<CreatePartition> has no <Type>")
            if extend and has_size:
                self.report(node, "E513", "Size and Extend are both given; use one")
            elif not extend and not has_size:
                self.report(node, "E513", "neither Size nor Extend=true is given")
            if extend and node is not created[-1] and kind.lower() != "extended":
                self.report(node, "E513", "the partition with Extend=true must be the last one")
        plan = {"disk": disk, "parts": parts, "complete": wiped and bool(created)}
        for node in disk.all("ModifyPartitions/ModifyPartition"):
            wanted = self.number(node.value("PartitionID"))
            if node.one("PartitionID") is None:
                self.report(node, "E310", "<ModifyPartition> has no <PartitionID>")
            if wanted is None:
                continue
            part = parts.get(wanted)
            if part is None:
                if plan["complete"]:
                    self.report(node, "E515", f"partition {wanted} is modified, but {number} are created")
                continue
            part.update(
                modify=node,
                letter=node.value("Letter"),
                format=node.value("Format"),
                active=node.value("Active").lower() == "true",
            )
            if part["type"] == "msr" and part["format"]:
                self.report(node, "W517", "Format on an MSR partition, which has no file system")
        self.check_firmware(plan)
        return plan

    def check_firmware(self, plan):
        firmware, kinds = self.options.firmware, [p["type"] for p in plan["parts"].values()]
        gpt = "efi" in kinds or "msr" in kinds
        mbr = "extended" in kinds or "logical" in kinds
        for part in plan["parts"].values():
            kind, label = part["type"], part["node"].value("Type")
            if kind in ("efi", "msr") and (firmware == "bios" or mbr):
                self.report(part["node"], "E510", f"{label} partitions cannot be made on an MBR disk (BIOS)")
            if kind in ("extended", "logical") and firmware == "uefi":
                self.report(part["node"], "E510", f"{label} partitions exist on MBR disks (BIOS) only")
            if part["active"] and (firmware == "uefi" or gpt):
                self.report(part["modify"], "E511", "Active is for MBR disks (BIOS) only")
            if kind == "efi":
                if part["size"] is not None and part["size"] < 100:
                    self.report(
                        part["node"],
                        "E514",
                        f"the EFI system partition has {part['size']} MB, at least 100 MB are needed",
                    )
                if part["format"] and part["format"].upper() != "FAT32":
                    self.report(
                        part["modify"], "E514", f"the EFI system partition is {part['format']}, it must be FAT32"
                    )
        if firmware == "bios" and len([k for k in kinds if k in ("primary", "extended")]) > 4:
            self.report(plan["disk"], "E510", "an MBR disk takes four primary partitions")

    def check_target(self, image, disks):
        target, free = image.one("InstallTo"), image.value("InstallToAvailablePartition").lower() == "true"
        if target is None:
            if not free:
                self.report(image, "W517", "neither InstallTo nor InstallToAvailablePartition: Setup asks where")
            return
        if free:
            self.report(target, "E512", "InstallTo and InstallToAvailablePartition=true exclude each other")
        for child in ("DiskID", "PartitionID"):
            if target.one(child) is None:
                self.report(target, "E310", f"<InstallTo> has no <{child}>")
        plan = disks.get(target.value("DiskID"))
        wanted = self.number(target.value("PartitionID"))
        if plan is None:
            if disks and target.one("DiskID") is not None:
                self.report(target, "E512", f"disk {target.value('DiskID')} is not in DiskConfiguration")
            return
        if wanted is None or not plan["complete"]:
            return
        part = plan["parts"].get(wanted)
        if part is None:
            self.report(target, "E512", f"partition {wanted} does not exist on disk {target.value('DiskID')}")
        elif part["type"] not in ("primary", "logical", ""):
            self.report(
                target,
                "E512",
                f"partition {wanted} is of type {part['node'].value('Type')}; Windows needs a primary or logical one",
            )
        elif part["format"].upper() == "FAT32":
            self.report(target, "E512", f"partition {wanted} is FAT32; Windows needs NTFS")

    def check_boot(self, disk_id, disks):
        """The disk Windows goes to must hold what the firmware boots from."""
        plan, firmware = disks[disk_id], self.options.firmware
        kinds = [p["type"] for p in plan["parts"].values()]
        if not plan["complete"]:
            return
        if firmware == "uefi":
            if not any(p["type"] == "efi" for d in disks.values() for p in d["parts"].values()):
                self.report(plan["disk"], "E510", "no EFI system partition is created")
            if "msr" not in kinds:
                self.report(plan["disk"], "W517", "no MSR partition is created")
            elif "primary" in kinds[: kinds.index("msr")] and "efi" in kinds[kinds.index("msr") :]:
                self.report(plan["disk"], "W517", "the MSR partition stands between a primary partition and the ESP")
        if firmware == "bios":
            active = [p for p in plan["parts"].values() if p["active"]]
            if len(active) > 1:
                self.report(active[1]["modify"], "E511", "more than one active partition")
            elif not active:
                self.report(plan["disk"], "W511", "no partition is made active; Setup has to choose one")
