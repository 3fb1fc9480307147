"""The stand-in media: boot catalog, boot images, initial RAM disk, WIM facts."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from winlab import data
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import UsageError, WinlabError
from winlab.events import Quiet
from winlab.supply.images import cache
from winlab_standin.builder import boot, engine, initrd, iso, media, root, wims
from winlab_standin.guest.releases import RELEASES

PACKAGE = Path(media.__file__).parent.parent
NAMES = ("windows-rehearsal", "windows-rehearsal-2019", "windows-rehearsal-2025")


def test_catalog() -> None:
    made = iso.catalog(bios=298, uefi=300)
    assert len(made) == 2048
    assert sum(struct.unpack("<16H", made[:32])) & 0xFFFF == 0
    assert made[4:28].rstrip(b"\0") == b"Microsoft Corporation"
    assert (made[1], made[30:32]) == (0, b"\x55\xaa")
    assert made[32] == 0x88
    assert struct.unpack_from("<HBBHI", made, 34) == (0, 0, 0, 8, 298)
    assert (made[64], made[65], made[96]) == (0x91, 0xEF, 0x88)
    assert struct.unpack_from("<HI", made, 102) == (1, 300)


def test_finish_moves_the_catalog(tmp_path: Path) -> None:
    image = tmp_path / "a.iso"
    content = bytearray(400 * 2048)
    content[17 * 2048 + 7 : 17 * 2048 + 30] = b"EL TORITO SPECIFICATION"
    image.write_bytes(content)
    grub = bytes(range(256)) * 400
    iso.finish(image, {iso.BIOS_IMAGE: 300, iso.UEFI_IMAGE: 310, "/bootmgr": 320}, grub)
    made = image.read_bytes()
    assert struct.unpack_from("<I", made, 17 * 2048 + 0x47) == (22,)
    assert made[22 * 2048 : 23 * 2048] == iso.catalog(300, 310)
    assert struct.unpack_from("<III", made, 300 * 2048 + 8) == (16, 320, len(grub))
    assert made[300 * 2048 + 20 : 300 * 2048 + 4096] == grub[20:4096]
    with pytest.raises(WinlabError, match="sector 22"):
        iso.finish(image, {iso.BIOS_IMAGE: 300, iso.UEFI_IMAGE: 310, "/bootmgr": 320}, grub)


def test_iso_layout(tmp_path: Path) -> None:
    """A whole small ISO: README.TXT alone in ISO9660, everything else in UDF, boot images reachable by the catalog."""
    import pycdlib

    grub, asking = b"G" * 9000, b"P" * boot.FLOPPY
    wim = tmp_path / "install.wim"
    wim.write_bytes(b"W" * 5000)
    target = tmp_path / "a.iso"
    files: dict[str, Path | bytes] = {
        "/bootmgr": grub,
        iso.BIOS_IMAGE: boot.etfsboot(grub, 0),
        iso.UEFI_IMAGE: asking,
        "/sources/install.wim": wim,
    }
    iso.write(target, files)
    made = target.read_bytes()
    entries = made[22 * 2048 :]
    uefi = struct.unpack_from("<I", entries, 104)[0]
    assert made[uefi * 2048 : uefi * 2048 + boot.FLOPPY] == asking
    bios = struct.unpack_from("<I", entries, 40)[0]
    where = struct.unpack_from("<I", made, bios * 2048 + 12)[0]
    assert made[where * 2048 : where * 2048 + 9000] == grub
    disc = pycdlib.PyCdlib()
    disc.open(str(target))
    names = [child.file_identifier() for child in disc.list_children(iso_path="/")]
    assert [name for name in names if name not in (b".", b"..")] == [b"README.TXT;1"]
    with disc.open_file_from_iso(udf_path="/sources/install.wim") as file:
        assert file.read() == b"W" * 5000
    disc.close()


def module(name: str, needs: str = "", alias: str = "") -> bytes:
    info = f"name={name}\0depends={needs}\0" + (f"alias={alias}\0" if alias else "")
    return lzma.compress(b"\x7fELF rest\0" + info.encode(), format=lzma.FORMAT_XZ)


FILES = {
    "kernel/a/ahci.ko.xz": module("ahci", "libata,libahci", "pci:v*bc01sc06*"),
    "kernel/a/libahci.ko.xz": module("libahci", "libata"),
    "kernel/a/libata.ko.xz": module("libata", "scsi_mod"),
    "kernel/s/scsi_mod.ko.xz": module("scsi_mod"),
    "kernel/n/other.ko.xz": module("other"),
}


def test_modules_bring_what_they_need() -> None:
    chosen = initrd.choose(FILES, ["kernel/fs/vfat.ko"], ["ahci", "vfat"])
    assert set(chosen) == {"ahci", "libahci", "libata", "scsi_mod"}
    with pytest.raises(WinlabError, match="'nosuch'"):
        initrd.choose(FILES, [], ["nosuch"])


def test_dependencies_are_listed_last_first() -> None:
    """busybox loads from the end: libata must stand behind libahci, which needs it."""
    dependencies, aliases = initrd.tables(initrd.choose(FILES, [], ["ahci"]))
    line = next(line for line in dependencies.splitlines() if line.startswith("ahci.ko:"))
    assert line == "ahci.ko: libahci.ko libata.ko scsi_mod.ko"
    assert aliases == "alias pci:v*bc01sc06* ahci\n"


def test_initrd_is_a_cpio() -> None:
    made = gzip.decompress(initrd.make("6.12", initrd.choose(FILES, [], ["ahci"]), b"BUSY", b"#!/bin/sh\n"))
    names = []
    at = 0
    while True:
        assert made[at : at + 6] == b"070701"
        fields = [int(made[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name = made[at + 110 : at + 110 + fields[11] - 1].decode()
        names.append(name)
        if name == "TRAILER!!!":
            break
        at += 110 + fields[11]
        at += -at % 4
        at += fields[6]
        at += -at % 4
    assert {"init", "bin/sh", "dev/console", "lib/modules/6.12/ahci.ko", "lib/modules/6.12/modules.dep"} <= set(names)
    assert gzip.compress(made, 6, mtime=0) == initrd.make(
        "6.12", initrd.choose(FILES, [], ["ahci"]), b"BUSY", b"#!/bin/sh\n"
    )


def test_editions_are_those_of_real_media() -> None:
    editions = wims.editions(RELEASES["2022"])
    assert [edition.name for edition in editions] == [
        "Windows Server 2022 SERVERSTANDARDCORE",
        "Windows Server 2022 SERVERSTANDARD",
        "Windows Server 2022 SERVERDATACENTERCORE",
        "Windows Server 2022 SERVERDATACENTER",
    ]
    assert editions[1].display == "Windows Server 2022 Standard Evaluation (Desktop Experience)"
    assert editions[0].edition == "ServerStandardEval"
    assert wims.editions(RELEASES["2019"])[3].name == "Windows Server 2019 SERVERDATACENTER"


def test_each_release_has_media_of_its_own() -> None:
    keys = {cache.key(recipes.get(name)) for name in NAMES}
    assert len(keys) == len(NAMES)
    assert [media.release(recipes.get(name)).name for name in NAMES] == ["2022", "2019", "2025"]


def test_the_system_inside_is_made_once(tmp_path: Path) -> None:
    """The media of one release are made from packages, the others take what is in them; unless they want others."""

    def first(name: str, **options: Any) -> str | None:
        request = BuildRequest(recipes.get(name), options, tmp_path / "a.iso", tmp_path, Quiet())
        found = media.donor(request)
        return found and found.name

    assert [first(name) for name in NAMES] == [None, NAMES[0], NAMES[0]]
    assert first(NAMES[1], lenient=True) == NAMES[0]
    assert first(NAMES[1], packages=["vim"]) is None
    traps = {"traps": ["user-app", "no-openshh"]}
    with pytest.raises(UsageError, match="no trap 'no-openshh'"):
        media.build(BuildRequest(recipes.get(NAMES[1]), traps, tmp_path / "a.iso", tmp_path, Quiet()))
    with pytest.raises(UsageError, match="no option 'leniant'"):
        media.build(BuildRequest(recipes.get(NAMES[1]), {"leniant": True}, tmp_path / "a.iso", tmp_path, Quiet()))


def test_offset(tmp_path: Path) -> None:
    part, whole = tmp_path / "part", tmp_path / "whole"
    part.write_bytes(b"hsqs" + bytes(range(256)) * 40)
    whole.write_bytes(b"x" * 208 + part.read_bytes()[:5000] + b"no" * 9000 + part.read_bytes() + b"rest")
    assert wims.offset(whole, part) == 208 + 5000 + 18000
    whole.write_bytes(b"nothing")
    with pytest.raises(WinlabError, match="one piece"):
        wims.offset(whole, part)


def test_recipe_and_fingerprint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = recipes.get("windows-rehearsal")
    assert (recipe.os, recipe.format, recipe.windows) == ("windows", "iso", "2022")
    before = media.fingerprint(recipe)
    assert before == media.fingerprint(recipe)
    other = tmp_path / "bootstrap.ps1"
    other.write_bytes(b"changed")
    monkeypatch.setattr(media, "_bootstrap", lambda: other)
    assert media.fingerprint(recipe) != before


def test_fingerprint_covers_what_the_guest_gets(tmp_path: Path) -> None:
    root.payload(tmp_path, {})
    covered = {path.relative_to(PACKAGE) for path in media._sources()}
    guest = tmp_path / "winlab_standin"
    inside = {path.relative_to(guest) for path in guest.rglob("*") if path.is_file()}
    assert {Path("__init__.py"), Path("guest/base.py")} <= inside
    assert inside <= covered
    boot_programs = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert {f"{name}.sh" for name in boot_programs} <= {path.name for path in (PACKAGE / "boot").iterdir()}


def test_fingerprint_includes_only_winlab_s_windows_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another docstring in winlab must not make new media: what the fingerprint reads is counted."""
    read: set[Path] = set()
    original = Path.read_bytes

    def watched(path: Path) -> bytes:
        read.add(path)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", watched)
    media.fingerprint(recipes.get("windows-rehearsal"))
    windows = data.folder("unattend") / "windows"
    scripts = {windows / "bootstrap.ps1", windows / "pe.cmd", *(windows / "worker").glob("*.ps1")}
    assert read == {*media._sources(), *scripts}
    assert all(path.is_relative_to(PACKAGE) for path in media._sources())


@pytest.mark.parametrize("changed", ["guest/base.py", "boot/init.sh", "shims/pdh.c", "builder/iso.py"])
def test_fingerprint_follows_every_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str) -> None:
    recipe = recipes.get("windows-rehearsal")
    before = media.fingerprint(recipe)
    copy = tmp_path / "winlab_standin"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(media, "_PACKAGE", copy)
    assert media.fingerprint(recipe) == before
    (copy / changed).write_bytes(b"changed")
    assert media.fingerprint(recipe) != before


def test_payload_is_complete(tmp_path: Path) -> None:
    """The guest gets every module of ours that its files import, and what its first programs start."""
    inside = tmp_path / "p"
    root.payload(inside, {"known.json": b"{}"})
    for name in ("winlab_standin/__init__.py", "winlab_standin/guest/main.py", "spnego/__init__.py", "init"):
        assert (inside / name).is_file(), name
    started = re.findall(r"(?:-m |from )(winlab[\w.]*)", (inside / "init").read_text() + (inside / "cmd").read_text())
    assert sorted(started) == ["winlab_standin.guest.login", "winlab_standin.guest.main"]
    for module in started:
        assert (inside / module.replace(".", "/")).with_suffix(".py").is_file(), module
    assert not (inside / "winlab").exists()


def test_boot_configurations() -> None:
    assert "winlab.mode=setup winlab.offset=1234" in boot.media_config(1234)
    assert "clearcpuid=cx16,smap,erms" in boot.disk_config("/Boot")


def test_ramdisk_loads_what_the_root_mounts() -> None:
    """The root has no modprobe: file systems and device classes must be loaded before, by name."""
    script = (Path(boot.__file__).parent.parent / "boot/ramdisk.sh").read_text()
    loaded = next(line for line in script.splitlines() if line.startswith("modprobe -a -q loop")).split()[3:]
    assert {"udf", "isofs", "vfat", "ntfs3", "sd_mod", "sr_mod", "evdev", "button", "overlay", "squashfs"} <= set(
        loaded
    )
    assert set(loaded) <= set(initrd.WANTED.split(","))


class Engine:
    """An available PowerShell engine, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str = "True") -> None:
        folder.mkdir()
        self.folder = folder
        self.program = folder / "winlab-ps"
        self.program.write_text("engine")
        self.program.chmod(0o755)
        monkeypatch.setenv(engine.VARIABLE, str(self.program))
        monkeypatch.setattr(engine, "run", lambda *_, **__: SimpleNamespace(stdout=f"{answer}\n"))
        engine.digest.cache_clear()
        engine.checked.cache_clear()


def test_media_with_a_powershell_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipes.get("windows-rehearsal")
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    without = media.fingerprint(first)
    assert media.note(first).endswith("played in Python: WINLAB_POWERSHELL names none (docs/standin.md).")
    assert media.donor(_request(first)) is None
    made = Engine(tmp_path / "engine", monkeypatch)
    with_it = media.fingerprint(first)
    assert media.note(first).endswith("are run by the PowerShell engine of WINLAB_POWERSHELL.")
    donor = media.donor(_request(first))
    assert donor is not None, "the system comes from the media without one"
    assert media.fingerprint(donor) == without != with_it
    assert media.donor(_request(donor)) is None
    made.program.write_text("another engine")
    engine.digest.cache_clear()
    assert media.fingerprint(first) not in (without, with_it)


def test_another_powershell_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipes.get("windows-rehearsal")
    Engine(tmp_path / "engine", monkeypatch, answer="False")
    assert "WINLAB_POWERSHELL names another PowerShell" in media.note(first)
    assert media.donor(_request(first)) is None


def test_an_engine_that_is_not_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.VARIABLE, str(tmp_path / "nosuch"))
    engine.checked.cache_clear()
    with pytest.raises(UsageError, match="is no program"):
        media.note(recipes.get("windows-rehearsal"))


def _request(recipe: Recipe) -> BuildRequest:
    options = recipe.build.options if recipe.build else {}
    return BuildRequest(recipe, options, Path("out"), Path("work"), Quiet(), None, {})
