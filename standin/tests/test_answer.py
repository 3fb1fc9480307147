"""The stand-in's Setup: finding, obeying and refusing answer files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
from passwords import encode

from winlab import data
from winlab_standin.guest import accounts, answer, plan, report, setup
from winlab_standin.guest.answer import AnswerError

PASSWORD = "Lab-Passw0rd!"
IMAGES = tuple(
    plan.Image(number, f"Windows Server 2022 SERVER{name}", name)
    for number, name in enumerate(("STANDARDCORE", "STANDARD", "DATACENTERCORE", "DATACENTER"), 1)
)
UEFI = plan.Machine(uefi=True, disks=(8 << 30,), images=IMAGES, evaluation=True)
BIOS = replace(UEFI, uefi=False)
STEPS = ("windowsPE", "offlineServicing", "specialize", "oobeSystem")


@pytest.fixture(scope="module")
def text() -> str:
    """winlab's own answer file."""
    return render("uefi")


@pytest.fixture(scope="module")
def bios_text() -> str:
    """The same for a machine with a BIOS."""
    return render("bios")


def render(firmware: str) -> str:
    folder = data.folder("unattend") / "windows"
    environment = jinja2.Environment(autoescape=True, loader=jinja2.FileSystemLoader(folder))
    environment.filters["unattend_password"] = encode
    template = environment.get_template("Autounattend.xml.j2")
    return template.render(
        firmware=firmware,
        install=True,
        keyboard="0409:00000409",
        locale_name="en-US",
        language="en-US",
        image_name="Windows Server 2022 SERVERSTANDARD",
        image_key="/IMAGE/NAME",
        product_key="",
        computer_name="W1",
        time_zone="UTC",
        administrator="Administrator",
        administrator_password=PASSWORD,
    )


def change(text: str, old: str, new: str, count: int = 1) -> bytes:
    assert old in text, f"the template has no {old!r} any more"
    return text.replace(old, new, count).encode()


def play(content: bytes, machine: plan.Machine = UEFI) -> plan.Plan:
    root = answer.parse(content, r"E:\Autounattend.xml")
    answer.check(root, "windowsPE")
    answer.check(root, "offlineServicing")
    return plan.make(root, machine)


def test_winlab_s_answer_file_is_obeyed(text: str) -> None:
    root = answer.parse(text.encode())
    for step in STEPS:
        answer.check(root, step)
    made = plan.make(root, UEFI)
    assert (made.disk, made.target, made.image.index) == (0, 3, 2)
    (first,) = plan.first_commands(root)
    assert r"\winlab\pe.cmd" in first
    assert [item.kind for item in made.partitions] == ["EFI", "MSR", "Primary"]


def test_partition_script(text: str) -> None:
    lines = setup.script(play(text.encode())).splitlines()
    assert lines[0] == "label: gpt"
    assert lines[1].startswith("size=260MiB, type=C12A7328")
    assert lines[3].startswith("type=EBD0A0A2")


def test_partition_script_of_a_bios(bios_text: str) -> None:
    made = play(bios_text.encode(), BIOS)
    assert made.target == 2
    assert setup.script(made) == "label: dos\nsize=500MiB, type=7, bootable\ntype=7\n"


MSR = "</Order>\n              <Type>MSR"
WIPE = "</DiskID>\n          <WillWipe"
TO = "</PartitionID>\n          </InstallTo>"
SHOWN = "</SystemLocale>\n      <UILanguage>"
PATH = "\n          <Path>"
LANGUAGE = "<SetupUILanguage>\n        <UILanguage>en-US</UILanguage>\n      </SetupUILanguage>"
REFUSED = {
    "not well-formed": ("</unattend>", "", "not well-formed"),
    "another root": ("urn:schemas-microsoft-com:unattend", "urn:other", "the root is"),
    "unknown component": ("International-Core-WinPE", "Internatonal-Core-WinPE", "no component"),
    "unknown setting": ("DiskConfiguration>", "DiskConfigurations>", "no setting 'DiskConfigurations'"),
    "setting of another case": ("<WillWipeDisk>true</WillWipeDisk>", "<willwipedisk>true</willwipedisk>", "no setting"),
    "no action": ('<Disk wcm:action="add">', "<Disk>", 'needs wcm:action="add"'),
    "bad boolean": ("<WillWipeDisk>true<", "<WillWipeDisk>yes<", "not true or false"),
    "bad number": ("<DiskID>0<", "<DiskID>first<", "not a number"),
    "bad choice": ("<Type>EFI<", "<Type>UEFI<", "not one of"),
    "same order twice": (f"<Order>2{MSR}", f"<Order>1{MSR}", "the key '1'"),
    "wrong token": ("31bf3856ad364e35", "31bf3856ad364e36", "publicKeyToken"),
    "unknown image": ("SERVERSTANDARD<", "Standard Evaluation<", "the images are"),
    "image of another version": ("2022 SERVERSTANDARD<", "2025 SERVERSTANDARD<", "the images are"),
    "licence": ("<AcceptEula>true<", "<AcceptEula>false<", "AcceptEula"),
    "empty key": ("<ProductKey>", "<ProductKey><Key></Key>", "Key is empty"),
    "key on evaluation media": (
        "<ProductKey>",
        "<ProductKey><Key>VDYBN-27WPP-V4HQT-9VMD4-VMK7H</Key>",
        "on evaluation media",
    ),
    "no language": (LANGUAGE, "", "is missing"),
    "missing disk": (f"<DiskID>0{WIPE}", f"<DiskID>1{WIPE}", "does not exist"),
    "disk not wiped": ("<WillWipeDisk>true<", "<WillWipeDisk>false<", "WillWipeDisk"),
    "no EFI partition": ("<Type>EFI<", "<Type>Primary<", "no EFI partition"),
    "EFI partition too small": ("<Size>260<", "<Size>60<", "100 MB"),
    "EFI partition of NTFS": ("<Format>FAT32<", "<Format>NTFS<", "must be FAT32"),
    "size and extend": ("<Extend>true</Extend>", "<Extend>true</Extend><Size>900</Size>", "either Size or Extend"),
    "disk too small": ("<Extend>true</Extend>", "<Size>90000</Size>", "the disk is smaller"),
    "target not created": (f"<PartitionID>3{TO}", f"<PartitionID>4{TO}", "does not create"),
    "same order, spelt otherwise": (f"<Order>2{MSR}", f"<Order>0x1{MSR}", "the key '1'"),
    "other language in Windows PE": (f"{SHOWN}en-US<", f"{SHOWN}de-DE<", "no language 'de-DE'"),
    "other language of Setup": ("<UILanguage>en-US<", "<UILanguage>de-DE<", "no language 'de-DE'"),
    "change of no partition": ("<PartitionID>2</PartitionID>", "<PartitionID>7</PartitionID>", "no partition 7"),
    "two changes of one partition": ("<PartitionID>2</PartitionID>", "<PartitionID>3</PartitionID>", "comes twice"),
    "formatted MSR": (
        "<PartitionID>2</PartitionID>",
        "<PartitionID>2</PartitionID><Format>NTFS</Format>",
        "MSR partition has no Format",
    ),
    "letter twice": ("<Label>System</Label>", "<Label>System</Label><Letter>c</Letter>", "Letter C is given twice"),
    "no letter": ("<Letter>C<", "<Letter>C:<", "not one letter"),
    "no type": ("<Type>MSR</Type>", "", "has no Type"),
    "component twice": (
        '<settings pass="specialize">',
        '<settings pass="windowsPE"><component name="Microsoft-Windows-Setup" processorArchitecture="amd64" '
        'publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS"/></settings>'
        '<settings pass="specialize">',
        "given twice",
    ),
    "command without order": (f"<Order>1</Order>{PATH}", "<Path>", "has no Order"),
    "target is the EFI partition": (f"<PartitionID>3{TO}", f"<PartitionID>1{TO}", "is EFI"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(text: str, case: str) -> None:
    old, new, detail = REFUSED[case]
    count = -1 if case == "unknown setting" else 1
    with pytest.raises(AnswerError) as caught:
        play(change(text, old, new, count))
    assert detail in caught.value.detail


def test_efi_partition_on_a_bios_is_refused(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        play(text.encode(), BIOS)
    assert "BIOS" in caught.value.detail
    assert "0x80042565" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("<Active>true</Active>", "", "no NTFS partition is active"),
        ("<Format>NTFS</Format>\n              <Active>", "<Format>FAT32</Format><Active>", "no NTFS partition is"),
        ("<Type>Primary</Type>\n              <Size>500", "<Type>Logical</Type><Size>500", "primary partitions"),
    ],
)
def test_disks_that_a_bios_can_t_start_are_refused(bios_text: str, old: str, new: str, says: str) -> None:
    with pytest.raises(AnswerError) as caught:
        play(change(bios_text, old, new), BIOS)
    assert says in caught.value.detail


def test_mbr_partitions_under_uefi_are_refused(bios_text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        play(bios_text.encode(), UEFI)
    assert "no active partition" in caught.value.detail


def test_a_disk_without_a_driver_is_invisible(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        play(text.encode(), replace(UEFI, disks=(), blind=("1AF4:1048",)))
    assert "no driver for PCI\\VEN_1AF4&DEV_1048" in caught.value.detail


def test_element_in_the_wrong_pass_is_refused(text: str) -> None:
    added = (
        '<settings pass="specialize"><component name="Microsoft-Windows-PartitionManager" '
        'processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35" language="neutral" '
        'versionScope="nonSxS"><SanPolicy>1</SanPolicy></component>'
    )
    root = answer.parse(change(text, '<settings pass="specialize">', added))
    with pytest.raises(AnswerError, match="PartitionManager"):
        answer.check(root, "specialize")


def test_a_pass_is_checked_when_it_comes(text: str) -> None:
    root = answer.parse(change(text, "<TimeZone>", "<Time_Zone>").replace(b"</TimeZone>", b"</Time_Zone>"))
    answer.check(root, "windowsPE")
    with pytest.raises(AnswerError) as caught:
        answer.check(root, "specialize")
    assert "[Microsoft-Windows-Shell-Setup]" in str(caught.value)


def test_too_long_command_is_refused(text: str) -> None:
    root = answer.parse(change(text, "phase=specialize", "x" * 300))
    with pytest.raises(AnswerError) as caught:
        answer.check(root, "specialize")
    assert "longer than 259" in caught.value.detail


def test_doctype_is_refused() -> None:
    with pytest.raises(AnswerError):
        answer.parse(b'<!DOCTYPE x [<!ENTITY a "b">]><unattend xmlns="urn:schemas-microsoft-com:unattend"/>')


@pytest.mark.parametrize("name", ["A" * 16, "12345", "", "a b", "w_1?", "w.1"])
def test_bad_computer_names(name: str) -> None:
    with pytest.raises(AnswerError):
        plan.computer_name(name, "WIN-1")


def test_good_computer_names() -> None:
    assert plan.computer_name("W1", "") == "W1"
    assert plan.computer_name("*", "WIN-ABC") == "WIN-ABC"


def put(folder: Path, name: str, step: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'<unattend xmlns="{answer.NAMESPACE}"><settings pass="{step}"/></unattend>')
    return path


def test_search_order(tmp_path: Path) -> None:
    stick, first, second, sources = (tmp_path / name for name in ("stick", "d", "e", "sources"))
    late = put(sources, "autounattend.xml", "windowsPE")
    disc = put(second, "AUTOUNATTEND.XML", "windowsPE")
    put(first, "unattend.xml", "windowsPE")  # not the name that counts on removable media
    places = ([stick], [first, second], sources)
    found = answer.find(answer.candidates(*places))
    assert found is not None
    assert found[0] == disc
    better = put(stick, "Autounattend.xml", "windowsPE")
    found = answer.find(answer.candidates(*places))
    assert found is not None
    assert found[0] == better
    assert late in list(answer.candidates(*places))


def test_a_file_without_the_pass_is_skipped(tmp_path: Path) -> None:
    put(tmp_path / "d", "Autounattend.xml", "specialize")
    wanted = put(tmp_path / "e", "Autounattend.xml", "windowsPE")
    found = answer.find(answer.candidates([], [tmp_path / "d", tmp_path / "e"], None))
    assert found is not None
    assert found[0] == wanted
    assert answer.find(answer.candidates([], [tmp_path / "d"], None)) is None


def node(value: str, plain: str | None) -> answer.Node:
    inner = f"<PlainText>{plain}</PlainText>" if plain else ""
    content = f'<unattend xmlns="{answer.NAMESPACE}"><Password><Value>{value}</Value>{inner}</Password></unattend>'
    return answer.parse(content.encode()).all("Password")[0]


def test_passwords() -> None:
    assert answer.password(node(encode("pä ss", "Password"), "false")) == "pä ss"
    assert answer.password(node("plain", None)) == "plain"
    assert answer.password(None) is None
    with pytest.raises(ValueError, match="does not end"):
        answer.password(node(encode("x", "Passwort"), "false"))
    with pytest.raises(ValueError, match="not base64"):
        answer.password(node("not base64!", "false"))


def test_password_policy() -> None:
    assert accounts.complex_enough(PASSWORD)
    assert not accounts.complex_enough("password")
    assert not accounts.complex_enough("Ab1")
    assert not accounts.complex_enough("Administrator-1")


def test_nt_hash_lines() -> None:
    lines = accounts.ntlm_lines("AB" * 16, "W1").splitlines()
    assert lines[0] == f"Administrator:500:{'0' * 32}:{'AB' * 16}:[U]:LCT-00000000"
    assert any(line.startswith("W1\\Administrator:") for line in lines)


def later(text: str, step: str, old: str, new: str) -> str:
    """The cause for which the pass *step* is refused when *old* in its part of the file becomes *new*."""
    before, mark, after = text.partition(f'<settings pass="{step}">')
    with pytest.raises(AnswerError) as caught:
        answer.check(answer.parse((before + mark).encode() + change(after, old, new)), step)
    return caught.value.detail


def test_refused_in_later_passes(text: str) -> None:
    assert "no language 'de-DE'" in later(text, "oobeSystem", "<UILanguage>en-US<", "<UILanguage>de-DE<")
    assert "has no Order" in later(text, "oobeSystem", "<Order>2</Order>", "")
    assert "has no Order" in later(text, "specialize", "<Order>2</Order>", "")
    reboot = later(text, "specialize", "</Order>", "</Order><WillReboot>OnRequest</WillReboot>")
    assert "WillReboot is 'OnRequest'" in reboot
    never = text.replace("</Order>\n          <Path>", "</Order><WillReboot>Never</WillReboot>\n          <Path>")
    answer.check(answer.parse(never.encode()), "specialize")


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("0x4", 4), ("010", 10), (" -1 ", -1), ("", None), ("1_0", None), ("0o7", None)]
)
def test_numbers(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match="not a number"):
            answer.number(text)
    else:
        assert answer.number(text) == value


def test_order_may_be_hexadecimal(text: str) -> None:
    root = answer.parse(text.replace("<Order>2</Order>", "<Order>0x10</Order>").encode())
    answer.check(root, "specialize")
    deployment = answer.component(root, "specialize", "Microsoft-Windows-Deployment")
    assert "NewNetworkWindowOff" in answer.commands(deployment, "RunSynchronous/RunSynchronousCommand", "Path")[-1]
    assert [item.kind for item in play(change(text, f"<Order>2{MSR}", f"<Order>0x2{MSR}")).partitions][1] == "MSR"


@pytest.mark.parametrize("how", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_cached_file_keeps_its_encoding(text: str, how: str) -> None:
    said = f'<?xml version="1.0" encoding="{how.removesuffix("-sig")}"?>'
    body = text[text.index("<unattend") :].replace(">winlab<", ">w\xefnlab<")
    odd = body.replace("<Password>", '<Password wcm:x="1">').replace("</Password>", "</Password >")
    concealed = answer.conceal((said + odd).encode(how))
    assert encode(PASSWORD, "Password") not in concealed.decode(how)
    assert encode(PASSWORD, "AdministratorPassword") not in concealed.decode(how)
    assert concealed.decode(how).count(answer.DELETED) == 2
    assert answer.parse(concealed).first("settings") is not None


def test_cached_file_keeps_no_key_and_no_other_password() -> None:
    key = '<Key x="1">VDYBN-27WPP-V4HQT-9VMD4-VMK7H</Key>'
    content = f"<a><Password/><Password>plain</Password>{key}<Keyboard>x</Keyboard></a>"
    gone = answer.DELETED
    expected = f'<a><Password/><Password>{gone}</Password><Key x="1">{gone}</Key><Keyboard>x</Keyboard></a>'
    assert answer.conceal(content.encode()).decode() == expected


def test_cached_file_keeps_no_password(text: str) -> None:
    concealed = answer.conceal(text.encode()).decode()
    assert encode(PASSWORD, "Password") not in concealed
    assert encode(PASSWORD, "AdministratorPassword") not in concealed
    assert concealed.count("*SENSITIVE*DATA*DELETED*") == 2
    answer.parse(concealed.encode())


def test_commands_come_in_order(text: str) -> None:
    root = answer.parse(text.encode())
    shell = answer.component(root, "oobeSystem", "Microsoft-Windows-Shell-Setup")
    found = answer.commands(shell, "FirstLogonCommands/SynchronousCommand", "CommandLine")
    assert found[0] == "cmd.exe /c echo winlab: phase=firstLogon>COM1 & exit /b 0"
    assert "bootstrap.ps1" in found[1]


@pytest.mark.parametrize(("size", "sectors"), [(260, 8), (200, 4), (100, 2), (40, 1), (0, 1)])
def test_fat_clusters(size: int, sectors: int) -> None:
    assert setup.cluster(size) == sectors
    assert size in (0, 40) or (size * 2048 - 2 * 2048) // sectors > 65_525


def test_commands_that_run_beside_setup_are_not_simulated(text: str) -> None:
    beside = "<RunAsynchronous><RunAsynchronousCommand><Order>1</Order><Path>cmd.exe /c ver</Path>"
    other = change(text, "<RunSynchronous>", f"{beside}</RunAsynchronousCommand></RunAsynchronous><RunSynchronous>")
    with pytest.raises(AnswerError, match="cannot continue"):
        plan.first_commands(answer.parse(other))


@pytest.mark.parametrize("told", [True, False])
def test_a_refusal_reaches_the_serial_port_only_by_that_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    said: list[str] = []
    monkeypatch.setattr(report, "write_port", said.append)
    monkeypatch.setattr(report.os, "sync", lambda: None)
    log = report.Log(tmp_path, screen=tmp_path / "screen")
    log.told = told
    log.refuse("No images are available.", "a key on evaluation media")
    assert ("a key on evaluation media" in "".join(said)) == told
    assert "a key on evaluation media" in (tmp_path / report.ERRORS).read_text()
    assert "No images are available." in (tmp_path / "screen").read_text()
