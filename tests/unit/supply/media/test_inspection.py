"""Reports about Windows media, and about files that only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest
import results
from commands import ran
from isos import SERVER, make_server_medium, make_wim

from winlab.design.catalog import recipes
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.supply.media import inspection, small_iso


def test_a_correct_medium(tmp_path: Path) -> None:
    report = inspection.inspect(make_server_medium(tmp_path / "w.iso"))
    assert report.problems == []
    assert (report.release, report.evaluation, report.channel, report.prompts) == ("2022", True, "eval", True)
    (image,) = report.images
    assert (image.name, image.build, image.revision, image.architecture) == (SERVER, 20348, 587, "x64")
    assert [image.index for image in report.setup] == [1, 2]
    assert [(entry.platform, entry.sector_count) for entry in report.boot] == [(0, 8), (0xEF, 1)]
    assert report.has("/efi/microsoft/boot/efisys_noprompt.bin")
    assert not report.has("/efi/microsoft/boot/cdboot.efi")
    assert report.sha256 is None


def test_volume_media(tmp_path: Path) -> None:
    assert inspection.inspect(make_server_medium(tmp_path / "w.iso", wim=make_wim([SERVER]))).evaluation is False


def test_the_sha256_identifies_known_media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_server_medium(tmp_path / "w.iso")
    report = inspection.inspect(path, Quiet())
    assert report.sha256 is not None
    assert report.known is None
    known = recipes.Evaluation(file="w.iso", url="https://example.com/", sha256=report.sha256)
    monkeypatch.setattr(recipes, "evaluations", lambda: [("windows-2022", known)])
    assert inspection.inspect(path, Quiet()).known == "windows-2022"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"wim": None}, "no sources/install.wim"),
        ({"wim": None, "files": {"install.esd": b"x"}}, "install.esd"),
        ({"wim": None, "files": {"install.swm": b"x", "install2.swm": b"x"}}, "split into .swm parts"),
        ({"wim": make_wim(["Windows 11 Pro"], edition="Professional", kind="Client")}, "a client, not Windows Server"),
        ({"wim": make_wim(["Windows Server 2016 SERVERSTANDARD"], build=14393)}, "does not know this release"),
        ({"wim": make_wim([SERVER], arch=12)}, "for arm64 processors"),
        ({"wim": make_wim([SERVER], parts=2)}, "split WIM"),
        ({"wim": b"<html>"}, "not a WIM"),
        ({"files": {}}, "no sources/boot.wim"),
        ({"uefi": False}, "UEFI can't boot it"),
    ],
)
def test_problems_are_reported(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    report = inspection.inspect(make_server_medium(tmp_path / "w.iso", **changes))
    assert [problem for problem in report.problems if says in problem.what and problem.cure], report.problems


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    client = make_wim(["Windows 11 Pro"], kind="Client", arch=12)
    report = inspection.inspect(make_server_medium(tmp_path / "w.iso", wim=client, uefi=False, files={}))
    assert len(report.problems) == 4


def test_media_that_ask_for_a_key_can_still_be_used(tmp_path: Path) -> None:
    """winlab presses it."""
    report = inspection.inspect(make_server_medium(tmp_path / "w.iso", noprompt=False))
    assert (report.prompts, report.problems) == (True, [])


def test_linux_media(tmp_path: Path) -> None:
    path = tmp_path / "l.iso"
    small_iso.write(path, "LINUX", {"a": b"b"})
    report = inspection.inspect(path)
    assert "no UDF file system" in report.problems[0].what


def test_an_incomplete_download(tmp_path: Path) -> None:
    path = make_server_medium(tmp_path / "w.iso")
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - 4096)
    with pytest.raises(UsageError, match=f"truncated: it has {whole - 4096} of") as error:
        inspection.inspect(path)
    assert "resume" in error.value.cure


def test_files_that_lie_beyond_the_end(tmp_path: Path) -> None:
    """The descriptors are complete, the last file's content is not."""
    report = inspection.inspect(make_server_medium(tmp_path / "w.iso"))
    report.size = max(one.begin + one.size for one in report.files if one.begin) - 1
    report.problems.clear()
    inspection._ends(report)
    assert "truncated" in report.problems[0].what
    assert "files are incomplete" in report.problems[0].what


@pytest.mark.parametrize(
    ("content", "says"), [(b"<!DOCTYPE html><html>", "a web page"), (b"\0" * 70000, "not a readable ISO")]
)
def test_files_that_are_not_isos(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "w.iso"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        inspection.inspect(path)


def test_an_iso_of_something_else(tmp_path: Path) -> None:
    small_iso.write(tmp_path / "l.iso", "LINUX", {"a": b"b"})
    report = inspection.inspect(tmp_path / "l.iso")
    assert "no UDF" in report.problems[0].what
    assert report.images == []


def test_the_command(tmp_path: Path) -> None:
    path = make_server_medium(tmp_path / "w.iso")
    done = ran("iso", "inspect", str(path), "--output", "json", "--tree")
    assert done.exit_code == 0
    found = results.item(done.stdout)
    assert (found["release"], found["usable"], found["asks_for_a_key"]) == ("2022", True, True)
    assert "/sources/install.wim" in [row["path"] for row in found["tree"]]
    done = ran("iso", "inspect", str(path))
    assert done.exit_code == 0
    assert done.stdout.startswith("Yes: Windows Server 2022 evaluation, build 20348.587.\n")
    assert "boots by" not in done.stdout
    done = ran("iso", "inspect", str(path), "-o", "wide")
    for word in (SERVER, "evaluation: no product key", "20348.587", "boots by UEFI"):
        assert word in done.stdout
    bios = str(make_server_medium(tmp_path / "b.iso", uefi=False))
    assert ran("iso", "inspect", bios).stdout.startswith("No: Windows Server 2022. ")
    done = ran("iso", "inspect", bios, "--output", "json")
    assert done.exit_code == 2
    found = results.item(done.stdout)
    assert found["usable"] is False
    assert found["problems"][0]["what"] in done.stderr


def test_evaluation_media_of_every_release() -> None:
    found = recipes.evaluations()
    assert {name for name, _ in found} == {"windows-2019", "windows-2022", "windows-2025"}
    assert len({one.sha256 for _, one in found}) == len(found)
