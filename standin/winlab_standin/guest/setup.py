"""Simulates Windows Setup: find the answer file, obey or refuse it, prepare the disk, apply the image, restart."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

from winlab_standin.guest import answer, devices, driverstore, plan, releases, wimread
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.base import StandinError, run
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives, match
from winlab_standin.guest.place import STATE
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.report import ACTIVITY, ERRORS, Log, draw, write_port
from winlab_standin.guest.shell import Shell, Streams
from winlab_standin.guest.world import World

X = Path("/tmp")  # noqa: S108  # Windows PE lives in memory
FIRMWARE = Path("/sys/firmware/efi")  # exists with UEFI
WIM = devices.MEDIA / "sources/install.wim"
TYPES = {
    "EFI": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
    "MSR": "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",
    "Primary": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
}
VIRTIO = frozenset(f"{driverstore.VIRTIO}:{device}" for device in ("1000", "1001", "1004", "1041", "1042", "1048"))
SECTOR, MBR_CODE, GAP = 512, 440, 1 << 20  # bytes; the first partition begins behind the gap
LANGUAGE = [
    "Language to install:        English (United States)",
    "Time and currency format:   English (United States)",
    "Keyboard or input method:   US",
    "",
    'Enter your language and other preferences and click "Next" to continue.',
    "                                                                  [ Next ]",
]


def halt() -> None:
    """Wait as a dialog does that no one answers."""
    while True:
        time.sleep(3600)


def evaluation(media: Path) -> bool:
    """Whether the media's ei.cfg says that they are for evaluation."""
    text = (media / "sources/ei.cfg").read_text(encoding="ascii", errors="replace")
    return bool(re.search(r"\[Channel\]\s*eval", text, re.IGNORECASE))


def main() -> None:
    """Simulate Setup from its start to the restart."""
    images = wimread.images(WIM)
    release = images[0].windows.release
    habits = releases.setup(release, devices.MEDIA)
    log = Log(X / habits.logs, habits.title)
    log.say("Windows Setup has started")
    log.write("Info", f"Windows Server {release.name}, build {release.build}")
    try:
        _setup(log, images, habits)
    except AnswerError as error:
        log.refuse(str(error), error.detail)
        halt()
    except StandinError as error:
        log.refuse("Windows Setup cannot continue. Setup will now close.", str(error).replace("\n", " "))
        halt()


def _setup(log: Log, images: tuple[plan.Image, ...], habits: releases.Setup) -> None:
    drives, languages = Drives({"X": X}), images[0].windows.languages
    roots: dict[str, list[Path]] = {"disc": [], "disk": []}
    installation = Path((STATE / "device").read_text().strip())
    for letter, folder, device in devices.letters(installation):
        drives.letters[letter] = folder
        roots["disc" if device.name.startswith("sr") else "disk"].append(folder)
    places = list(answer.candidates(roots["disk"], roots["disc"], devices.MEDIA / "sources"))
    found = answer.find(places)
    if found is None:
        log.write("Info", "no answer file with a windowsPE pass was found")
        write_port("setup: waiting: no answer file was found, so Setup asks for the language\r\n")
        draw(habits.title, LANGUAGE)
        halt()
        return
    path, root = found
    answer.refuse_second(path, places, "windowsPE")
    shown = next(
        (f"{letter}:\\{path.name}" for letter, folder in drives.letters.items() if path.parent == folder), str(path)
    )
    log.say(f"answer file: {shown}")
    for step in ("windowsPE", "offlineServicing"):
        answer.check(root, step, shown, languages, gapless=habits.gapless)
    # Windows PE's own registry is lost at its end; the class installer that names serial ports does not run in it
    windows = replace(images[0].windows, traps=habits.traps)
    world = World(drives, Registry(X / "registry.json", windows), has_com1=False, windows=windows)
    run_commands(log, world, root, habits)
    packages = drivers(log, drives, root, habits, driverstore.present())
    disks, blind = devices.disks(driverstore.devices(packages) | in_pe(habits))
    machine = plan.Machine(
        FIRMWARE.is_dir(),
        tuple(size for _, size in disks),
        images,
        evaluation(devices.MEDIA),
        blind,
    )
    wanted = plan.make(root, machine)
    log.say(f"image: {wanted.image.name} ({wanted.windows.build}, {wanted.windows.language})")
    disk = disks[wanted.disk][0]
    require_free_disks(world)
    log.say(f"disk {wanted.disk}: creating {len(wanted.partitions)} partitions")
    prepare(disk, wanted)
    log.say("Copying Windows files")
    target = devices.partition(disk, wanted.target)
    run(["wimlib-imagex", "apply", WIM, str(wanted.image.index), target])
    log.say("Getting files ready for installation")
    _finish(disk, wanted, path.read_bytes(), packages, log)
    log.say("Windows needs to restart to continue")
    run(["busybox", "reboot"])
    halt()


def run_commands(log: Log, world: World, root: answer.Node, habits: releases.Setup) -> None:
    """Run the commands of the pass windowsPE.

    :raises AnswerError: one ended with a code other than 0, and this Setup ends on that.
    """
    for command in plan.first_commands(root):
        code = execute(log, world, command)
        log.told = log.told or world.watches
        if code != 0 and habits.fatal:
            raise AnswerError("Windows installation has failed. 0x80070001 - 0x40030", f"not 0: {command}")


def drivers(
    log: Log, drives: Drives, root: answer.Node, habits: releases.Setup, present: list[str]
) -> list[driverstore.Package]:
    """The drivers in the folders that the answer file names, and in the folder that Setup looks for on every drive.
    *present*: the machine's devices.

    :raises AnswerError: one can't be installed, or a named folder is missing, and this Setup ends on that.
    :raises StandinError: the same one is in two folders.
    """
    named = {path: drives.real(path) for path in answer.driver_paths(root)}
    gone = [path for path, folder in named.items() if folder is None or not folder.is_dir()]
    if gone and releases.DEAD_PATHS in habits.traps:
        raise AnswerError("Windows installation has failed. 0x80070003 - 0x40031", f"DriverPaths: no {gone[0]}")
    searched = [match(drives.letters[letter], driverstore.SEARCHED) for letter in sorted(drives.letters)]
    packages = driverstore.collect([*(folder for folder in named.values() if folder is not None), *searched])
    for package in packages:
        lacks = f", which lacks {', '.join(package.missing)}" if package.missing else ""
        log.say(f"driver: {package.inf.name}{lacks}")
    problem = driverstore.refused(packages, present, in_pe(habits))
    if problem and habits.fatal:
        code, _, about = problem.partition(": ")
        raise AnswerError(
            f"Windows installation has failed. {code} - 0x40031",
            f"CDlpActionDriverInstallation::ExecuteUnattendDriverInstall: Result = {code}: {about}",
        )
    if problem:
        log.say(f"a driver is left out: {problem}")
    return packages


def in_pe(habits: releases.Setup) -> frozenset[str]:
    """The devices that the medium's own Windows PE has drivers for, in addition to those of every Windows."""
    return VIRTIO if releases.OWN_VIRTIO in habits.traps else frozenset()


def require_free_disks(world: World) -> None:
    """Refuse to partition while another program uses the disks' service, if the medium has the trap.

    :raises AnswerError: one does.
    """
    if world.holds_disks:
        raise AnswerError(
            "Windows installation has failed. 0x80070002 - 0x40030",
            "DiskConfiguration: the Virtual Disk Service has another client",
        )


def execute(log: Log, world: World, command: str) -> int:
    """Run a command of the answer file; its output goes to the log."""
    kept: list[str] = []
    folder = "C:\\" if "C" in world.drives.letters else "X:\\"
    # alone: each machine also tests a script in its own process, as Windows starts it
    code = Shell(world, COMMANDS, cwd=folder, alone=True).spawn(command, Streams(kept.append, kept.append))
    log.write("Info" if code == 0 else "Error", f"command: {command}\nexit code: {code}\n{''.join(kept)}")
    if code != 0:
        log.say(f"command ended with {code}: {command[:120]}: {' '.join(''.join(kept).split())[:200]}")
    return code


def script(wanted: plan.Plan) -> str:
    """The input of sfdisk."""
    if wanted.of("EFI") is None:
        rows = [f"size={item.size}MiB, " if item.size else "" for item in wanted.partitions]
        flags = [", bootable" if item.active else "" for item in wanted.partitions]
        return "label: dos\n" + "".join(f"{row}type=7{flag}\n" for row, flag in zip(rows, flags, strict=True))
    lines = ["label: gpt"]
    for item in wanted.partitions:
        size = f"size={item.size}MiB, " if item.size else ""
        lines.append(f'{size}type={TYPES[item.kind]}, name="{item.label or item.kind}"')
    return "\n".join(lines) + "\n"


def cluster(size: int) -> int:
    """Sectors per cluster for FAT32 on *size* MiB. With more sectors GRUB reads faster, but with fewer than 65,525
    clusters it would be FAT16."""
    return next((count for count in (8, 4, 2) if size * 2048 // count > 66_500), 1) if size else 1


def prepare(disk: Path, wanted: plan.Plan) -> None:
    """Partition and format the disk."""
    run(["sfdisk", "--quiet", "--wipe", "always", "--wipe-partitions", "always", disk], stdin=script(wanted))
    for item in wanted.partitions:
        device = devices.partition(disk, item.number)
        devices.wait_for(device)
        if item.format == "FAT32":
            label = ["-n", item.label.upper()[:11]] if item.label else []
            run(["mkfs.vfat", "-F", "32", "-s", str(cluster(item.size)), *label, device])
        elif item.format == "NTFS":
            run(["mkntfs", "--quick", "--quiet", "--label", item.label, device])


def _finish(disk: Path, wanted: plan.Plan, data: bytes, packages: list[driverstore.Package], log: Log) -> None:
    """Copy boot files to the system partition, drivers into the store, answer file and logs into Panther."""
    windows, system = Path("/c"), Path("/run/system")
    if not devices.mount(devices.partition(disk, wanted.target), windows, ("ntfs3",), "rw,noatime"):
        raise StandinError("The new volume can't be mounted.")
    efi = wanted.of("EFI")
    if efi is not None:
        _boot_by_uefi(devices.partition(disk, efi.number), windows, system)
    else:
        _boot_by_bios(disk, wanted, windows, system)
    driverstore.stage(packages, windows)
    if releases.OWN_VIRTIO in releases.traps(devices.MEDIA):
        driverstore.stage(driverstore.packages(devices.MEDIA / "standin/virtio-win"), windows)
    releases.record(replace(wanted.windows, traps=releases.traps(devices.MEDIA)), windows)
    panther = windows / "Windows/Panther"
    (panther / "unattend.xml").write_bytes(data)
    log.say("Installing features and updates")
    for name in (ACTIVITY, ERRORS):
        if (log.folder / name).is_file():
            shutil.copyfile(log.folder / name, panther / name)
    run(["umount", windows])


def _boot_by_uefi(partition: Path, windows: Path, system: Path) -> None:
    if not devices.mount(partition, system, ("vfat",), "rw"):
        raise StandinError("The new EFI partition can't be mounted.")
    boot = system / "EFI/Microsoft/Boot"
    boot.mkdir(parents=True)
    (system / "EFI/Boot").mkdir()
    loader = windows / "Windows/Boot/EFI/bootmgfw.efi"
    shutil.copyfile(loader, boot / "bootmgfw.efi")
    shutil.copyfile(loader, system / "EFI/Boot/bootx64.efi")
    _fill(boot, windows)
    run(["umount", system])


def _boot_by_bios(disk: Path, wanted: plan.Plan, windows: Path, system: Path) -> None:
    """Write the boot sector's code, the loader into the gap after it, and the rest on the active partition."""
    active = next(item for item in wanted.partitions if item.active)
    own = active.number == wanted.target
    if own:
        system = windows
    elif not devices.mount(devices.partition(disk, active.number), system, ("ntfs3",), "rw"):
        raise StandinError("The new system partition can't be mounted.")
    folder = windows / "Windows/Boot/PCAT"
    code, loader = (folder / "mbr.bin").read_bytes(), (folder / "bootmgr").read_bytes()
    if len(code) > MBR_CODE or len(loader) > GAP - SECTOR:
        raise StandinError("The boot loader does not fit before the first partition.")
    with disk.open("r+b", buffering=0) as device:
        device.write(code)
        device.seek(SECTOR)
        device.write(loader.ljust(-(-len(loader) // SECTOR) * SECTOR, b"\0"))
    shutil.copyfile(folder / "bootmgr", system / "bootmgr")
    (system / "Boot").mkdir()
    _fill(system / "Boot", windows)
    if not own:
        run(["umount", system])


def _fill(boot: Path, windows: Path) -> None:
    for name in ("vmlinuz", "initrd.img"):
        shutil.copyfile(windows / "Windows/System32/standin" / name, boot / name)
    (boot / "BCD").write_bytes(b"regf" + b"\0" * 4092)
