"""The releases that the stand-in simulates: what the medium says, and the habits in which they differ."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from passwords import encode

from winlab import data
from winlab.design.catalog import versions
from winlab.design.cni import compatible
from winlab.design.render import answer as rendered
from winlab.design.render import runtime_classes
from winlab.supply.media import drivers as staged
from winlab_standin.builder import media as media_builder
from winlab_standin.builder import virtio, wims
from winlab_standin.guest import (
    accounts,
    answer,
    batch,
    driverstore,
    installed,
    plan,
    players,
    releases,
    report,
    services,
    setup,
    wimread,
)
from winlab_standin.guest.answer import AnswerError
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.machine import Machine, ScriptError
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import DELAYED, WINRM, Registry
from winlab_standin.guest.releases import RELEASES, Windows
from winlab_standin.guest.report import Log
from winlab_standin.guest.shell import Shell, Streams
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World

PASSWORD = "Lab-Passw0rd!"
EVERY = pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))


@pytest.fixture(autouse=True)
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the serial port; the screen is a file."""
    said: list[str] = []
    monkeypatch.setattr(report, "write_port", said.append)
    monkeypatch.setattr(installed, "write_port", said.append)
    monkeypatch.setattr(report, "SCREEN", tmp_path / "screen")
    return said


def answers(**more: str) -> answer.Node:
    """winlab's own answer file."""
    return answer.parse(answer_text(**more).encode())


def answer_text(**more: str) -> str:
    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(data.folder("unattend") / "windows")
    )
    environment.filters["unattend_password"] = encode
    values = {
        "firmware": "uefi", "install": True, "keyboard": "0409:00000409", "locale_name": "en-US", "language": "en-US",
        "image_name": "x", "image_key": "/IMAGE/NAME", "product_key": "", "computer_name": "W1", "time_zone": "UTC",
        "administrator": "Administrator", "administrator_password": PASSWORD,
    }  # fmt: skip
    return environment.get_template("Autounattend.xml.j2").render({**values, **more})


def wim(folder: Path, release: releases.Release) -> Path:
    """A WIM of nothing but the list of images, as the builder has wimlib write it."""
    text = ""
    for number, edition in enumerate(wims.editions(release), 1):
        about = wims.properties(release, edition.edition, edition.installation)
        flat = {name.rpartition("/")[2]: value for name, value in about.items()}
        spoken = "".join(f"<LANGUAGE>{value}</LANGUAGE>" for name, value in about.items() if "/LANGUAGE[" in name)
        text += (
            f'<IMAGE INDEX="{number}"><NAME>{edition.name}</NAME><WINDOWS><EDITIONID>{flat["EDITIONID"]}</EDITIONID>'
            f"<INSTALLATIONTYPE>{flat['INSTALLATIONTYPE']}</INSTALLATIONTYPE><LANGUAGES>{spoken}<DEFAULT>"
            f"{flat['DEFAULT']}</DEFAULT></LANGUAGES><VERSION><BUILD>{flat['BUILD']}</BUILD></VERSION></WINDOWS></IMAGE>"
        )
    body = f"\ufeff<WIM>{text}</WIM>".encode("utf-16-le")
    header = bytearray(208)
    header[:8] = b"MSWIM\0\0\0"
    header[0x48:0x4F] = len(body).to_bytes(7, "little")
    header[0x50:0x58] = (208).to_bytes(8, "little")
    path = folder / f"{release.name}.wim"
    path.write_bytes(bytes(header) + body)
    return path


@EVERY
def test_winlab_knows_each_release_by_the_same_build(release: releases.Release) -> None:
    assert runtime_classes.BUILDS[release.name] == f"10.0.{release.build}"
    assert staged.RELEASES[release.name] == release.drivers
    assert f"/NetKVM/{release.drivers}/amd64/netkvm.inf" in "".join(virtio.files(release))
    going = [row for row in versions.names() if fits(row, release)]
    assert going, "a lab with this release takes some version of Kubernetes"


def fits(row: str, release: releases.Release) -> bool:
    try:
        compatible.check(versions.get(row), release.name, Windows(release).build, "l3")
    except Exception:  # what it refuses is its own tests' matter
        return False
    return True


@EVERY
def test_the_medium_says_what_is_installed(tmp_path: Path, release: releases.Release) -> None:
    images = wimread.images(wim(tmp_path, release))
    desktop, core = images[1].windows, images[2].windows
    assert (desktop.installation, core.installation) == ("Server", "Server Core")
    assert core == Windows(release, "ServerDatacenterEval", "Server Core", "en-US", ("en-US", "fr-FR"))
    assert core.name == f"Windows Server {release.name} Datacenter Evaluation"
    root = tmp_path / "c"
    assert releases.installed(root) == Windows()
    releases.record(core, root)
    assert releases.installed(root) == core
    disc = tmp_path / "disc"
    assert releases.traps(disc) == ()
    (disc / releases.SWITCHES).parent.mkdir(parents=True)
    (disc / releases.SWITCHES).write_bytes(media_builder._switches({"traps": ["user-app"]}))
    trapped = replace(core, traps=releases.traps(disc))
    releases.record(trapped, root)
    assert releases.installed(root).traps == ("user-app",)


@EVERY
def test_every_source_names_the_same_release(tmp_path: Path, release: releases.Release) -> None:
    """cmd.exe, the registry, the scripts, the guest agent."""
    windows = Windows(release)
    for folder in ("c/Windows/System32/config", "d"):
        (tmp_path / folder).mkdir(parents=True)
    registry = Registry(tmp_path / "registry.json", windows)
    world = World(Drives({"C": tmp_path / "c", "D": tmp_path / "d"}), registry, windows=windows)
    config = tmp_path / "c/Windows/System32/config"
    machine = Machine(
        tmp_path / "c", tmp_path / "d", config, Manager(config / "s.json", set), world, lambda _line: None
    )
    assert players.status(machine, {})["build"] == windows.build
    assert players.features(machine, {"release": release.name, "features": ["Containers"]}) == {"restart": True}
    for other in set(RELEASES) - {release.name}:
        with pytest.raises(ScriptError, match=f"This is Windows build {release.build}, not Windows Server {other}"):
            players.features(machine, {"release": other, "features": ["Containers"]})
    said: list[str] = []
    Shell(world, COMMANDS).run("ver", Streams(said.append, said.append))
    assert f"[Version 10.0.{windows.build}]" in said[-1]
    current = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
    assert registry.get(current, "CurrentBuildNumber") == str(release.build)
    assert registry.get(current, "UBR") == hex(release.revision)
    assert (registry.get(current, "DisplayVersion") is None) == (release.name == "2019")
    assert f'VERSION_ID="{release.name}"' in installed.os_release(windows)


def test_an_unknown_build_is_refused() -> None:
    with pytest.raises(Exception, match="does not know the build 14393"):
        releases.of_build(14393)


def media(folder: Path, *, lenient: bool) -> Path:
    path = folder / releases.SWITCHES
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"lenient": lenient}))
    return folder


# Of 2025 it is known that its Setup ends on all this; of those before nothing is, so both are accepted
SETUPS = pytest.mark.parametrize(
    ("name", "lenient", "ends"),
    [
        ("2019", False, True),
        ("2019", True, False),
        ("2022", False, True),
        ("2022", True, False),
        ("2025", False, True),
        ("2025", True, True),
    ],
)


@SETUPS
def test_a_command_that_fails_in_windows_pe(tmp_path: Path, name: str, lenient: bool, ends: bool) -> None:
    """Such as the answer file's first one, which wrote to a port without a name."""
    habits = releases.setup(RELEASES[name], media(tmp_path, lenient=lenient))
    log = Log(tmp_path / "x" / habits.logs, habits.title)
    world = World(Drives({"X": tmp_path}), Registry(tmp_path / "registry.json"), has_com1=False)
    root = answers()
    path = next(iter(answer.component(root, "windowsPE", plan.SETUP).all("RunSynchronous/RunSynchronousCommand/Path")))
    path.text = "cmd.exe /c echo winlab: phase=windowsPE>COM1"
    if ends:
        with pytest.raises(AnswerError, match="0x80070001 - 0x40030"):
            setup.run_commands(log, world, root, habits)
    else:
        setup.run_commands(log, world, root, habits)
    path.text += " & exit /b 0"
    setup.run_commands(log, world, root, habits)


@SETUPS
@pytest.mark.parametrize(("gone", "code"), [("netkvmp.exe", "0x80070002"), ("", "0x80070103")])
def test_a_driver_that_can_not_be_installed(
    tmp_path: Path, port: list[str], name: str, lenient: bool, ends: bool, gone: str, code: str
) -> None:
    """A file is missing, or the device has a driver already."""
    release = RELEASES[name]
    habits = releases.setup(release, media(tmp_path, lenient=lenient))
    log = Log(tmp_path / "x" / habits.logs, habits.title)
    cd = staged_drivers(tmp_path / "e", release)
    drives, root, there = Drives({"E": tmp_path / "e"}), answers(), ["8086:10D3", "1AF4:1048", ""]
    assert len(setup.drivers(log, drives, root, habits, there)) == 3
    if gone:
        (cd / f"NetKVM/{gone}").unlink()
    else:
        (cd / "own-1").mkdir()
        (cd / "own-1/e1d.inf").write_text("[M]\nx = y, PCI\\VEN_8086&DEV_10D3\n")
    if ends:
        with pytest.raises(AnswerError, match=f"{code} - 0x40031") as caught:
            setup.drivers(log, drives, root, habits, there)
        assert f"ExecuteUnattendDriverInstall: Result = {code}" in caught.value.detail
    else:
        setup.drivers(log, drives, root, habits, there)
        assert code in port[-1]


def staged_drivers(cd: Path, release: releases.Release) -> Path:
    """The drivers as winlab's answer CD has them."""
    for path, content in virtio.files(release).items():
        place = cd / staged.SETUP / Path(path).parents[2].name / Path(path).name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return cd / staged.SETUP


def trapped(folder: Path, release: releases.Release, *traps: str) -> releases.Setup:
    """The Setup of a medium with these traps."""
    path = folder / releases.SWITCHES
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"lenient": True, "traps": traps}))
    return releases.setup(release, folder)


@EVERY
def test_setup_finds_the_drivers_by_itself(tmp_path: Path, port: list[str], release: releases.Release) -> None:
    """Whatever letter the CD has. So the answer file names no folder, at which some Setup ends if it is not there."""
    habits = trapped(tmp_path, release, releases.DEAD_PATHS)
    log = Log(tmp_path / "x" / habits.logs, habits.title)
    root, there = answers(), ["1AF4:1048", "1AF4:1041"]
    staged_drivers(tmp_path / "g", release)
    for drives in (Drives({"D": tmp_path / "d", "G": tmp_path / "g"}), Drives({"C": tmp_path / "g"})):
        found = setup.drivers(log, drives, root, habits, there)
        assert driverstore.devices(found).issuperset(there)
    component = (
        '<component name="Microsoft-Windows-PnpCustomizationsWinPE" processorArchitecture="amd64" '
        'publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS"><DriverPaths>'
        '<PathAndCredentials wcm:action="add" wcm:keyValue="1"><Path>F:\\drv</Path></PathAndCredentials>'
        "</DriverPaths></component>"
    )
    begin = '<settings pass="windowsPE">'
    named = answer.parse(answer_text().replace(begin, f"{begin}{component}").encode())
    answer.check(named, "windowsPE")
    with pytest.raises(AnswerError, match="0x80070003 - 0x40031"):
        setup.drivers(log, drives, named, habits, there)
    setup.drivers(log, drives, named, trapped(tmp_path, RELEASES["2019"]), there)


def test_a_driver_that_windows_pe_has_itself_ends_setup_of_2025(tmp_path: Path) -> None:
    """Of media that were rebuilt with virtio's drivers; winlab gives Setup none of these, and SATA needs none."""
    habits = trapped(tmp_path, RELEASES["2025"], releases.OWN_VIRTIO)
    log, drives = Log(tmp_path / "x" / habits.logs, habits.title), Drives({"E": tmp_path / "e"})
    assert setup.drivers(log, drives, answers(), habits, ["1AF4:1048"]) == []
    assert "1AF4:1048" in setup.in_pe(habits)
    staged_drivers(tmp_path / "e", RELEASES["2025"])
    with pytest.raises(AnswerError, match="0x80070103 - 0x40031"):
        setup.drivers(log, drives, answers(), habits, ["1AF4:1048"])


def test_winlab_s_script_leaves_the_disks_to_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Setup minds another client of the disks' service, as diskpart is one."""
    windows = Windows(traps=(releases.BUSY_DISKS,))
    world = World(Drives({"E": tmp_path}), Registry(tmp_path / "registry.json"), has_com1=False, windows=windows)
    monkeypatch.setattr(World, "serial", lambda _self, _text: None)
    own = data.texts("unattend")["windows/pe.cmd"].replace("\n", "\r\n").encode()
    for content in (own, own + b"diskpart /s X:\\disks.txt\r\n"):
        (tmp_path / "pe.cmd").write_bytes(content)
        (tmp_path / "known.json").write_text(json.dumps({"pe_sha256": hashlib.sha256(content).hexdigest()}))
        assert batch.play(tmp_path / "pe.cmd", world, pytest.fail, tmp_path / "known.json") == 0
        if content == own:
            setup.require_free_disks(world)
    with pytest.raises(AnswerError, match="0x80070002 - 0x40030"):
        setup.require_free_disks(world)


def test_a_driver_for_a_missing_device_does_no_harm(tmp_path: Path) -> None:
    package = driverstore.Package(tmp_path / "balloon.inf", frozenset({"1AF4:1045", "8086:10D3"}), ())
    assert driverstore.refused([package], ["1AF4:1045", "8086:2922"]) == ""


def test_setup_of_2025_refuses_gaps_in_the_order_of_commands() -> None:
    gapless = {name: releases.setup(release, Path("/none")).gapless for name, release in RELEASES.items()}
    assert gapless == {"2019": False, "2022": False, "2025": True}
    root = answers()
    for step in ("windowsPE", "offlineServicing", "specialize", "oobeSystem"):
        answer.check(root, step, gapless=True)
    deployment = answer.component(root, "specialize", "Microsoft-Windows-Deployment")
    order = deployment.all("RunSynchronous/RunSynchronousCommand/Order")[-1]
    order.text = "9"
    answer.check(root, "specialize")
    with pytest.raises(AnswerError) as caught:
        answer.check(root, "specialize", gapless=True)
    assert "0x8007000D" in caught.value.detail


def test_setup_of_2025_logs_to_another_folder_at_first() -> None:
    logs = {name: releases.setup(release, Path("/none")).logs for name, release in RELEASES.items()}
    assert logs == {"2019": "$WINDOWS.~BT/Sources/Panther", "2022": "$WINDOWS.~BT/Sources/Panther", "2025": "Windows"}
    watched = data.texts("unattend")["windows/pe.cmd"]
    for folder in logs.values():
        assert "X:\\{}\\setuperr.log".format(folder.replace("/", "\\")) in watched


class Halted(Exception):
    """Instead of staying forever."""


@EVERY
def test_setup_simulates_the_release_of_its_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: list[str], release: releases.Release
) -> None:
    """From its start to the restart, with a fake disk and fake programs."""

    def halt() -> None:
        raise Halted

    installation, cd, finished = tmp_path / "d", tmp_path / "e", list[plan.Plan]()
    (installation / "sources").mkdir(parents=True)
    (installation / "sources/ei.cfg").write_bytes(b"[Channel]\r\neval\r\n")
    cd.mkdir()
    name = f"Windows Server {release.name} SERVERDATACENTER"
    (cd / "Autounattend.xml").write_text(answer_text(image_name=name, language="fr-FR"))
    (tmp_path / "device").write_text("/dev/sr0\n")
    letters = [("D", installation, Path("/dev/sr0")), ("E", cd, Path("/dev/sr1"))]
    commands: list[str] = []
    for place, attribute, value in (
        (setup, "WIM", wim(tmp_path, release)),
        (setup, "STATE", tmp_path),
        (setup, "FIRMWARE", tmp_path),
        (setup, "X", tmp_path / "x"),
        (setup, "halt", halt),
        (setup, "draw", lambda *_: None),
        (setup, "prepare", lambda *_: None),
        (setup, "run", lambda words: commands.append(" ".join(map(str, words)))),
        (setup, "_finish", lambda _disk, wanted, *_: finished.append(wanted)),
        (setup.devices, "MEDIA", installation),
        (setup.devices, "letters", lambda _: letters),
        (setup.devices, "disks", lambda _: ([(Path("/dev/sda"), 8 << 30)], ())),
        (setup.driverstore, "present", list),
        (report.os, "sync", lambda: None),
    ):
        monkeypatch.setattr(place, attribute, value)
    with pytest.raises(Halted):
        setup.main()
    (made,) = finished
    assert made.windows == Windows(release, "ServerDatacenterEval", "Server", "fr-FR")
    assert f"setup: image: {name} ({made.windows.build}, fr-FR)\r\n" in port
    assert commands[0].endswith("4 /dev/sda3")


# Languages


def machine(release: str = "2022", languages: tuple[str, ...] = releases.LANGUAGES) -> plan.Machine:
    windows = Windows(RELEASES[release], languages=languages)
    return plan.Machine(True, (8 << 30,), (plan.Image(1, "x", "x", windows),), True)


def test_windows_is_installed_in_the_language_that_the_answer_file_names() -> None:
    made = plan.make(answers(language="fr-fr"), machine("2019"))
    assert (made.windows.language, made.windows.account) == ("fr-FR", "Administrateur")
    assert plan.make(answers(), machine()).windows.language == "en-US"


def test_a_language_that_the_media_do_not_have_is_refused() -> None:
    with pytest.raises(AnswerError) as caught:
        plan.make(answers(language="fr-FR"), machine(languages=("en-US",)))
    assert "theirs are en-US" in caught.value.detail
    with pytest.raises(AnswerError) as caught:
        answer.check(answers(language="fr-FR"), "oobeSystem", languages=("en-US",))
    assert "have no language 'fr-FR'" in caught.value.detail
    answer.check(answers(language="fr-FR"), "oobeSystem")


@pytest.mark.parametrize(
    ("language", "account", "logs_on"),
    [
        ("en-US", "Administrator", True),
        ("fr-FR", "Administrator", False),
        ("fr-FR", "Administrateur", True),
    ],
)
def test_the_english_name_is_refused_in_another_language(
    tmp_path: Path, language: str, account: str, logs_on: bool
) -> None:
    shell = answer.component(answers(administrator=account), "oobeSystem", installed.SHELL_SETUP)
    name = accounts.name(tmp_path, Windows(language=language))
    assert installed._logs_on(shell, PASSWORD, Log(tmp_path), name) is logs_on


def test_winlab_knows_the_account_of_each_language_of_the_media() -> None:
    for language, name in releases.ACCOUNTS.items():
        assert rendered.ACCOUNTS.get(language.partition("-")[0], "Administrator") == name


def test_only_the_account_s_own_name_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until bootstrap.ps1 has called it Administrator; that outlives sysprep."""
    monkeypatch.setattr(accounts, "SHADOW", tmp_path / "shadow")
    monkeypatch.setattr(accounts, "NTLM", tmp_path / "ntlm")
    (tmp_path / "shadow").write_text("root:*:1::::::\nAdministrator:old:1::::::\n")
    (tmp_path / accounts.SAM).write_text(json.dumps({"crypt": "C", "nt": "F"}))
    french = Windows(language="fr-FR")
    accounts.activate(tmp_path, french, "w1")
    assert "Administrator:" not in (tmp_path / "ntlm").read_text() + (tmp_path / "shadow").read_text()
    assert "w1\\Administrateur:500:" in (tmp_path / "ntlm").read_text()
    accounts.rename(tmp_path, french, "w1")
    assert "w1\\Administrator:500:" in (tmp_path / "ntlm").read_text()
    assert "Administrator:C:" in (tmp_path / "shadow").read_text()
    (tmp_path / accounts.SAM).unlink()
    accounts.rename(tmp_path, french, "w1")  # nothing is left to do
    assert accounts.name(tmp_path, french) == "Administrator"


# WinRM


class Port(services.Services):
    """WinRM whose listener is only noted."""

    starts = 0

    def start_winrm(self) -> None:
        self.starts += 1


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Port:
    folder.mkdir(exist_ok=True)
    (folder / "standin-winrm.crt").touch()
    monkeypatch.setattr(services, "STATE", folder)
    monkeypatch.setattr(services, "C", folder)
    made = Port(lambda: Shell(World(Drives(), made.registry), COMMANDS), folder, **more)
    return made


def test_winrm_starts_minutes_after_windows_unless_configured_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = started(tmp_path / "late", monkeypatch)
    now = 1000.0
    monkeypatch.setattr(services.time, "monotonic", lambda: now)
    late.start_configured()
    late.drop_if_asked()
    assert late.starts == 0
    now += services.LATE + 1
    late.drop_if_asked()
    late.drop_if_asked()
    assert late.starts == 1
    at_once = started(tmp_path / "at-once", monkeypatch)
    at_once.registry.add(WINRM, DELAYED, "REG_DWORD", "0")
    at_once.start_configured()
    assert at_once.starts == 1


def test_a_winrm_that_does_not_start_with_windows_starts_when_a_script_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = started(tmp_path / "c", monkeypatch, windows=Windows(traps=(releases.STOPPED_WINRM,)))
    made.registry.add(WINRM, DELAYED, "REG_DWORD", "0")
    made.start_configured()
    made.drop_if_asked()
    assert made.starts == 0
    (tmp_path / "c/reload.winrm").touch()
    made.serve_requests()
    assert made.starts == 1


def test_the_release_of_a_plan_is_that_of_its_image() -> None:
    """Setup writes down the image that it installs, not the first of the medium."""
    images = tuple(
        plan.Image(number, name, name, replace(Windows(RELEASES["2025"]), edition=f"Server{name}Eval"))
        for number, name in enumerate(("Standard", "Datacenter"), 1)
    )
    made = plan.make(answers(image_name="Datacenter"), replace(machine(), images=images))
    assert made.windows.name == "Windows Server 2025 Datacenter Evaluation"
