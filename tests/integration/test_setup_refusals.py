"""What Windows Setup would refuse, on the real path to a golden image: winlab notices, keeps evidence, says why."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Winlab, stand_in_medium
from isos import BOOT, EVAL, make_server_medium, make_wim

from winlab import data
from winlab.supply.media import small_iso

TEMPLATE = data.folder("unattend") / "windows/Autounattend.xml.j2"
WRONG_PASS = """{% extends "winlab/Autounattend.xml.j2" %}
{% block specialize %}
    <component name="Microsoft-Windows-PartitionManager" processorArchitecture="amd64"
      publicKeyToken="31bf3856ad364e35" language="neutral" versionScope="nonSxS"><SanPolicy>1</SanPolicy></component>
{% endblock %}
"""


NAME = "Windows Server 2022 SERVERDATACENTERCORE"
DATACENTER = make_wim([NAME], edition="ServerDatacenterEval")
BOTH = {"boot.wim": BOOT, "EI.CFG": EVAL}


@pytest.mark.parametrize(
    ("wim", "files", "change", "says"),
    [
        (
            DATACENTER,
            BOTH,
            "workers.edition=standard-desktop",
            "has no image named 'Windows Server 2022 SERVERSTANDARD'",
        ),
        (
            DATACENTER,
            BOTH,
            "workers.product_key=AAAAA-BBBBB-CCCCC-DDDDD-EEEEE",
            "an evaluation, which takes no product",
        ),
        (make_wim([NAME], edition="ServerDatacenter"), {"boot.wim": BOOT}, "", "Setup asks for a product key"),
        (DATACENTER, {**BOTH, "/autounattend.xml": b"<unattend/>"}, "", "carries an answer file of its own"),
        (DATACENTER, BOTH, "workers.drivers={nothing}", "has no vioscsi and no NetKVM for Windows Server 2022"),
        (DATACENTER, BOTH, "workers.drivers={storage}", "has no NetKVM for Windows Server 2022"),
        (DATACENTER, BOTH, "workers.template={renames}", "no name of more than 15 bytes"),
    ],
)
def test_what_would_stop_setup_is_reported_before_anything_is_made(
    host: None, apart: Winlab, tmp_path: Path, wim: bytes, files: dict[str, bytes], change: str, says: str
) -> None:
    medium = make_server_medium(tmp_path / "w.iso", wim=wim, files=files)
    renames, nothing, storage = tmp_path / "own.xml.j2", tmp_path / "nothing.iso", tmp_path / "storage.iso"
    renames.write_text(TEMPLATE.read_text().replace("{{ computer_name }}", "A-NAME-THAT-IS-TOO-LONG"))
    small_iso.write(nothing, "VIRTIO", {"readme.txt": b"none"})
    small_iso.write(storage, "VIRTIO", {"vioscsi/2k22/amd64/vioscsi.inf": b"[Version]"})
    changes = ["--set", change.format(renames=renames, nothing=nothing, storage=storage)] if change else []
    done = apart("create", "--spec", "1-1-1", "--iso", str(medium), "--lab", "it-refused", *changes)
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "it-refused" not in apart.ok("list")


@pytest.fixture
def apart(winlab: Winlab, tmp_path: Path) -> Winlab:
    """With a state of its own, so that the evidence can be looked at after the lab has gone."""
    return Winlab(env={**winlab.env, "WINLAB_STATE": str(tmp_path / "state")})


def _with_a_wrong_pass(text: str) -> str:
    return WRONG_PASS


def _with_a_closed_firewall(text: str) -> str:
    line = next(line for line in text.splitlines() if "FirstNetwork" in line)
    words = "netsh.exe advfirewall set publicprofile firewallpolicy blockinboundalways,allowoutbound"
    return text.replace(line.strip(), f"<Path>{words}</Path>")


TEMPLATES: dict[str, Callable[[str], str]] = {
    "wrong pass": _with_a_wrong_pass,
    "firewall": _with_a_closed_firewall,
    "partitions": lambda text: text.replace('firmware == "uefi"', 'firmware == "bios"'),
    "empty key": lambda text: text.replace("<Key>{{ product_key }}</Key>", "").replace(
        "<ProductKey>", "<ProductKey><Key/>"
    ),
}
# A driver ISO of virtio-win's layout, whose drivers are for no device
NO_DRIVER = "no driver"
EMPTY = {f"{name}/2k22/amd64/{name.lower()}.inf": b"[Version]\r\n" for name in ("vioscsi", "NetKVM")}


@dataclass(frozen=True)
class Refused:
    """How an image's build with a user's template ended."""

    code: int
    said: str
    evidence: dict[str, bytes]  # the files it names
    folder: Path | None  # where they were


@pytest.fixture(scope="module")
def refused(host: None, winlab: Winlab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Refused]:
    """What is tried on the way of ``image build``: two at a time, because each machine has one CPU.

    Slow: eight minutes. Each refusal's log leads to its known cause in tests/unit/design/cause, too.
    """
    stand_in_medium(winlab)
    names = (*TEMPLATES, NO_DRIVER)

    def attempt(name: str) -> Refused:
        folder = tmp_path_factory.mktemp("refused")
        if name == NO_DRIVER:
            own = folder / "drivers.iso"
            small_iso.write(own, "VIRTIO", EMPTY)
            change = f"workers.drivers={own}"
        else:
            own = folder / "own.xml.j2"
            own.write_text(TEMPLATES[name](TEMPLATE.read_text()))
            change = f"workers.template={own}"
        # 180 s without KVM: longer than Linux, under the stand-in, keeps what it will write, also on a busy machine. A
        # bootstrap ends by itself
        stall = {} if name == "firewall" else {"WINLAB_STALL_SECONDS": "120"}
        user = Winlab(env={**winlab.env, "WINLAB_STATE": str(folder / "state"), **stall})
        try:
            done = user("image", "build", "windows-rehearsal", "--set", change)
            found = evidence(done.stderr)
            files = {path.name: path.read_bytes() for path in found.iterdir()} if found is not None else {}
        finally:
            for builder in (folder / "state/labs").glob("golden-*/"):  # never a user's lab
                user.ok("destroy", "--lab", builder.name)
        return Refused(done.returncode, done.stderr, files, found)

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(names, pool.map(attempt, names), strict=True))


def evidence(said: str) -> Path | None:
    """The folder of evidence, where a message names one."""
    for line in said.splitlines():
        if line.strip().startswith("evidence: /"):
            return Path(line.split("evidence:")[1].partition(";")[0].strip())
    return None


@pytest.mark.slow
def test_an_element_in_the_wrong_pass(refused: dict[str, Refused]) -> None:
    """It is noticed at the first start; Setup's logs are read off the disk of a machine that does not answer."""
    done = refused["wrong pass"]
    assert done.code == 8, done.said
    assert "Setup rejects the answer file" in done.said
    assert done.evidence["screen.png"].startswith(b"\x89PNG")
    assert b"phase=specialize" not in done.evidence["serial.log"]
    assert b"Microsoft-Windows-PartitionManager" in done.evidence["Panther-setuperr.log"]


@pytest.mark.slow
def test_a_firewall_that_takes_no_rules(refused: dict[str, Refused]) -> None:
    """The Public profile, set to accept no connection: WinRM could not be reached, and the bootstrap says so."""
    done = refused["firewall"]
    assert done.code == 9, done.said
    assert "the firewall takes no inbound rules in the profile Public" in done.said
    assert "Remove that setting from the template" in done.said
    assert b"winlab: error=" in done.evidence["serial.log"]
    assert done.evidence["screen.png"].startswith(b"\x89PNG")


@pytest.mark.slow
def test_partitions_for_the_other_firmware(refused: dict[str, Refused]) -> None:
    done = refused["partitions"]
    assert done.code == 8, done.said
    assert "The partitions do not fit the machine's firmware" in done.said


@pytest.mark.slow
def test_an_empty_key(refused: dict[str, Refused]) -> None:
    """Setup then asks on the screen, whatever the medium."""
    done = refused["empty key"]
    assert done.code == 8, done.said
    assert "The product key does not fit the medium or the edition" in done.said
    assert "Evaluation media take none" in done.said


@pytest.mark.slow
def test_a_missing_driver(refused: dict[str, Refused]) -> None:
    done = refused[NO_DRIVER]
    assert done.code == 8, done.said
    assert "the driver for its bus is missing" in done.said
    assert "workers.drivers" in done.said


@pytest.mark.slow
def test_failed_builds_leave_nothing(refused: dict[str, Refused], winlab: Winlab) -> None:
    listed = winlab.ok("list")
    folders = [done.folder for done in refused.values() if done.folder is not None]
    assert folders
    for folder in folders:  # <state>/labs/<lab>/evidence/<node>
        assert folder.parents[1].name.startswith("golden-")
        assert folder.parents[1].name not in listed
        assert not folder.exists()
