"""The content of the answer ISO besides winlab's own: virtio drivers, and additions of the user."""

from __future__ import annotations

from pathlib import Path

import plans
import pytest

from winlab.design import spec
from winlab.errors import UsageError
from winlab.supply.images import stock
from winlab.supply.media import drivers, extras, small_iso


def make_virtio_win(path: Path, folders: list[str], *, tools: bool = False) -> Path:
    files = {f"{folder}/{name}": name.encode() for folder in folders for name in ("d.inf", "d.sys", "d.pdb", "d.exe")}
    more = {drivers.GUEST_TOOLS: b"MZ", "guest-agent/qemu-ga-x86_64.msi": b"MSI", "guest-agent/qemu-ga-i386.msi": b"-"}
    small_iso.write(path, "virtio-win", files | (more if tools else {}))
    return path


def test_drivers_of_the_release_are_staged_with_their_programs(tmp_path: Path) -> None:
    folders = [f"{name}/{release}/amd64" for name in ("vioscsi", "NetKVM", "viostor") for release in ("2k22", "w11")]
    path = make_virtio_win(tmp_path / "v.iso", folders, tools=True)
    in_setup = "$WinPEDriver$"
    places = {
        ("virtio-scsi", "virtio"): {f"{in_setup}/NetKVM", f"{in_setup}/vioscsi", "drv2/viostor"},
        ("virtio-blk", "virtio"): {f"{in_setup}/NetKVM", f"{in_setup}/viostor", "drv2/vioscsi"},
        ("virtio-scsi", "e1000e"): {f"{in_setup}/vioscsi", "drv2/NetKVM", "drv2/viostor"},
        ("sata", "e1000e"): {"drv2/NetKVM", "drv2/viostor", "drv2/vioscsi"},
        ("sata", "virtio"): {"drv2/NetKVM", "drv2/viostor", "drv2/vioscsi"},
    }
    for (bus, nic), wanted in places.items():
        staged_ = drivers.stage(path, "2022", bus, nic)
        assert staged_.keys() == {
            *(f"{folder}/d.{kind}" for folder in wanted for kind in ("inf", "sys", "exe")),
            "winlab/virtio-win-guest-tools.exe",
            "winlab/qemu-ga-x86_64.msi",
        }
        assert staged_["winlab/qemu-ga-x86_64.msi"] == b"MSI"
        assert staged_["winlab/virtio-win-guest-tools.exe"] == b"MZ"


@pytest.mark.parametrize(
    ("bus", "nic", "says"),
    [
        ("virtio-scsi", "virtio", "has no vioscsi and no NetKVM for"),
        ("virtio-blk", "e1000e", "has no viostor for"),
        ("sata", "virtio", "has no NetKVM for"),
    ],
)
def test_the_drivers_for_disk_and_nic_must_be_there(tmp_path: Path, bus: str, nic: str, says: str) -> None:
    path = make_virtio_win(tmp_path / "v.iso", ["Balloon/2k22/amd64"])
    with pytest.raises(UsageError, match=says):
        drivers.stage(path, "2022", bus, nic)
    assert drivers.stage(path, "2022", "sata", "e1000e")  # Windows has its own


def test_malformed_driver_isos(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        drivers.stage(tmp_path / "missing.iso", "2022", "sata", "e1000e")
    with pytest.raises(UsageError, match="has no vioscsi"):
        drivers.check(make_virtio_win(tmp_path / "v.iso", ["Balloon/2k22/amd64"]))
    drivers.check(make_virtio_win(tmp_path / "w.iso", ["vioscsi/2k25/amd64", "NetKVM/2k25/amd64"]))


def staged(**words: object) -> dict[str, Path]:
    """What extras.stage gives for a spec with these fields of ``workers``."""
    changes = [f"workers.{name}={value}" for name, value in words.items()]
    at_hand = stock.take(spec.load("1-1-1", changes))
    (node,) = plans.make(plans.KVM, "1-1-1", *changes).windows_nodes()
    return extras.stage(node, at_hand)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name in (
        "second.ps1",
        "first.PS1",
        "tree/Users/Public/a.txt",
        "tree/b.txt",
        "driver/x/my.INF",
        "driver/my.sys",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_user_files_are_placed_correctly(own: Path) -> None:
    """Scripts in the order in which they are named."""
    found = staged(scripts=f"[{own}/second.ps1, {own}/first.PS1]", files=own / "tree", extra_drivers=f"[{own}/driver]")
    assert {name: path.read_text() for name, path in found.items()} == {
        "winlab/scripts/01-second.ps1": "second.ps1",
        "winlab/scripts/02-first.PS1": "first.PS1",
        "winlab/files/Users/Public/a.txt": "tree/Users/Public/a.txt",
        "winlab/files/b.txt": "tree/b.txt",
        "drv2/own-1/x/my.INF": "driver/x/my.INF",
        "drv2/own-1/my.sys": "driver/my.sys",
    }
    assert staged() == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scripts": ("none.ps1",)}, "can't be read"),
        ({"scripts": ("tree/b.txt",)}, "can't be run"),
        ({"files": "none"}, "There is no folder"),
        ({"files": "long"}, "has more than 64 bytes"),
        ({"extra_drivers": ("tree",)}, "Folder 1 of workers.extra_drivers has no drivers"),
    ],
)
def test_wrong_user_files_are_named(own: Path, changes: dict[str, str | tuple[str, ...]], says: str) -> None:
    (own / "long").mkdir()
    (own / "long" / ("x" * 65)).touch()
    paths = {
        name: own / value if isinstance(value, str) else f"[{', '.join(str(own / one) for one in value)}]"
        for name, value in changes.items()
    }
    with pytest.raises(UsageError) as caught:
        staged(**paths)
    assert says in str(caught.value) + caught.value.why


@pytest.mark.parametrize(
    ("inf", "bus", "place"),
    [
        (b'[Version]\r\nClass = "SCSIAdapter"\r\n', "virtio-scsi", "$WinPEDriver$"),
        ("[Version]\r\nclass=hdc ; comment\r\n".encode("utf-16"), "virtio-blk", "$WinPEDriver$"),
        (b"[Version]\r\nClass=SCSIAdapter\r\n", "sata", "drv2"),
        (b"[Version]\r\nClass=Net\r\n; Class=SCSIAdapter\r\n", "virtio-scsi", "drv2"),
        (b"\xff\xfe\x00", "virtio-scsi", "drv2"),
    ],
)
def test_setup_gets_only_drivers_for_disks(own: Path, inf: bytes, bus: str, place: str) -> None:
    """The Setup of 2025 ends if any driver in its folder can't be installed in Windows PE. On SATA it needs none."""
    (own / "driver/x/my.INF").write_bytes(inf)
    assert f"{place}/own-1/my.sys" in staged(extra_drivers=f"[{own / 'driver'}]", bus=bus)


def test_files_of_4_gib_are_refused(own: Path) -> None:
    with (own / "tree/b.txt").open("r+b") as file:
        file.truncate(1 << 32)  # a hole
    with pytest.raises(UsageError, match="too large"):
        staged(files=own / "tree")
