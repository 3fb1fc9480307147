"""The stand-in's drivers: what Windows sees only with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab_standin.builder import virtio
from winlab_standin.guest import driverstore
from winlab_standin.guest.base import StandinError

SCSI, NET = "1AF4:1048", "1AF4:1041"


@pytest.fixture
def cd(tmp_path: Path) -> Path:
    """The drivers of the stand-in media, as winlab stages them."""
    for path, content in virtio.files().items():
        place = tmp_path / driverstore.SEARCHED / Path(path).parents[2].name / Path(path).name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return tmp_path / driverstore.SEARCHED


def test_the_media_s_drivers_are_for_virtio(cd: Path) -> None:
    found = driverstore.devices(driverstore.collect([cd, cd / "none"]))
    assert found == {"1AF4:1000", "1AF4:1001", "1AF4:1004", NET, "1AF4:1042", SCSI}


def test_windows_brings_drivers_for_all_but_virtio() -> None:
    assert driverstore.works("8086:2922", frozenset())
    assert driverstore.works("", frozenset())
    assert not driverstore.works(SCSI, frozenset())
    assert driverstore.works(SCSI, frozenset({SCSI}))


def test_netkvm_without_its_programs_is_silently_left_out(cd: Path, tmp_path: Path) -> None:
    (cd / "NetKVM/netkvmp.exe").unlink()
    packages = driverstore.collect([cd])
    assert [package.missing for package in packages if package.inf.stem == "netkvm"] == [("netkvmp.exe",)]
    driverstore.stage(packages, tmp_path)
    assert SCSI in driverstore.known(tmp_path)
    assert NET not in driverstore.known(tmp_path)


def test_the_store_outlives_the_cd(cd: Path, tmp_path: Path) -> None:
    driverstore.stage(driverstore.collect([cd]), tmp_path)
    driverstore.stage(driverstore.collect([cd]), tmp_path)
    assert NET in driverstore.known(tmp_path)
    assert driverstore.known(tmp_path / "other") == frozenset()


def test_the_same_driver_on_two_media_stops_setup(cd: Path, tmp_path: Path) -> None:
    (tmp_path / "second/x").mkdir(parents=True)
    (tmp_path / "second/x/VIOSCSI.INF").write_bytes((cd / "vioscsi/vioscsi.inf").read_bytes())
    with pytest.raises(StandinError, match="0x80070103"):
        driverstore.collect([cd, tmp_path / "second"])


def test_infs_of_microsoft_s_own_encoding_are_read(tmp_path: Path) -> None:
    inf = tmp_path / "x.inf"
    inf.write_bytes("[SourceDisksFiles]\r\n; a=1\r\nx.sys=1,,\r\n[M]\r\nx=y,PCI\\VEN_1af4&DEV_1048".encode("utf-16"))
    package = driverstore.read(inf)
    assert (package.devices, package.missing) == ({SCSI}, ("x.sys",))
