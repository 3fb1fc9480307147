"""What the Debian builder asks of mmdebstrap, and the disk that it makes, as far as that can be known without them."""

from __future__ import annotations

import io
import struct
import tarfile
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from winlab import data, run
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import BuildRequest
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.supply.images import debian, guestdisk

DISK = uuid.UUID("12345678-1234-5678-1234-567812345678")
SECTORS = 4 * 1024 * 1024 * 2  # 4 GiB
PARTS = [
    guestdisk.Partition(guestdisk.ESP_TYPE, "esp", 2048, 133119),
    guestdisk.Partition(guestdisk.ROOT_TYPE, "root", 133120, SECTORS - 2049),
]


def header(block: bytes) -> tuple[Any, ...]:
    fields = struct.unpack("<8sIIIIQQQQ16sQIII", block[:92])
    blank = block[:16] + bytes(4) + block[20:92]
    assert fields[3] == zlib.crc32(blank)
    return fields


def test_gpt_has_two_headers_that_point_at_each_other() -> None:
    head, tail = guestdisk.gpt(DISK, SECTORS, PARTS)
    assert (len(head), len(tail)) == (34 * 512, 33 * 512)
    first, last = header(head[512:1024]), header(tail[-512:])
    assert first[0] == last[0] == b"EFI PART"
    assert (first[5], first[6]) == (last[6], last[5]) == (1, SECTORS - 1)
    assert first[7:9] == last[7:9] == (34, SECTORS - 34)
    assert (first[10], last[10]) == (2, SECTORS - 33)
    entries = head[1024:]
    assert entries == tail[:-512]
    assert first[13] == last[13] == zlib.crc32(entries)


def test_gpt_entries_and_protective_mbr() -> None:
    head, _ = guestdisk.gpt(DISK, SECTORS, PARTS)
    entry = head[1024 : 1024 + 128]
    assert uuid.UUID(bytes_le=entry[:16]) == guestdisk.ESP_TYPE
    assert struct.unpack("<QQ", entry[32:48]) == (2048, 133119)
    assert entry[56:].decode("utf-16-le").rstrip("\0") == "esp"
    assert head[1024 + 256 : 1024 + 384] == bytes(128)
    assert head[510:512] == b"\x55\xaa"
    assert head[446 + 4] == 0xEE
    assert struct.unpack("<II", head[446 + 8 : 446 + 16]) == (1, SECTORS - 1)


def test_overlay_is_packed_as_roots_and_only_scripts_may_run(tmp_path: Path) -> None:
    archive = tmp_path / "overlay.tar"
    debian.pack(data.folder("images") / "debian" / "root", archive)
    with tarfile.open(archive) as tar:
        members = {member.name: member for member in tar}
    assert members["./etc/initramfs-tools/hooks/winlab"].mode == 0o755
    assert members["./etc/fstab"].mode == 0o644
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "root")}


def test_cloud_init_configuration_is_yaml() -> None:
    text = (data.folder("images") / "debian/root/etc/cloud/cloud.cfg.d/99-winlab.cfg").read_text()
    assert yaml.safe_load(text)["datasource_list"] == ["NoCloud", "None"]


def test_fingerprint_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipes.get("debian-13")
    assert debian.fingerprint(recipe) == debian.fingerprint(recipe)
    (tmp_path / "debian" / "root").mkdir(parents=True)
    monkeypatch.setattr(data, "folder", lambda _: tmp_path)
    empty = debian.fingerprint(recipe)
    (tmp_path / "debian" / "root" / "a").write_text("1")
    one = debian.fingerprint(recipe)
    (tmp_path / "debian" / "root" / "a").write_text("2")
    assert len({empty, one, debian.fingerprint(recipe)}) == 3


STATUS = """\
Package: apt
Status: install ok installed
Version: 3.0.3
Description: commandline package manager
 Status: not a field, but a line of a text

Package: gone
Status: deinstall ok config-files
Version: 1

Package: adduser
Status: install ok installed
Version: 3.152
"""


def root(tar: Path) -> None:
    """A root file system of nothing but dpkg's list."""
    with tarfile.open(tar, "w") as archive:
        member = tarfile.TarInfo("./var/lib/dpkg/status")
        member.size = len(STATUS)
        archive.addfile(member, io.BytesIO(STATUS.encode()))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []

    def stream(args: list[str], on_line: Callable[[str], None], **_: object) -> None:
        seen.append(args)
        root(Path(args[-2]))
        on_line("I: installing remaining packages inside the chroot...")

    monkeypatch.setattr(run, "stream", stream)
    monkeypatch.setattr(guestdisk, "make_disk", lambda tar, output, *_: output.write_bytes(b"disk"))
    return seen


def request(folder: Path, **changes: object) -> BuildRequest:
    recipe = recipes.get("debian-13")
    assert recipe.build is not None
    (folder / "w o r k").mkdir()
    options = {**recipe.build.options, **changes}
    return BuildRequest(recipe, options, folder / "out", folder / "w o r k", Quiet(), "http://mirror.example/debian")


def test_build_asks_mmdebstrap_for_the_recipes_packages(tmp_path: Path, commands: list[list[str]]) -> None:
    asked = request(tmp_path)
    debian.build(asked)
    assert asked.packages == {"adduser": "3.152", "apt": "3.0.3"}
    (command,) = commands
    assert command[:3] == ["setpriv", "--pdeathsig=TERM", "mmdebstrap"]
    assert command[-3:] == [
        "trixie",
        str(tmp_path / "w o r k/root.tar"),
        "deb http://mirror.example/debian trixie main",
    ]
    include = next(word for word in command if word.startswith("--include=")).removeprefix("--include=").split(",")
    assert {"linux-image-cloud-amd64", "cloud-init", "openssh-server", "qemu-guest-agent"} <= set(include)
    assert any(word.startswith("--essential-hook=tar-in '") for word in command)  # the path has blanks
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong", [{"suite": "trixie; rm"}, {"size_gib": 0}, {"packages": []}, {"unknown": 1}, {"suite": None}]
)
def test_wrong_options_are_named(tmp_path: Path, wrong: dict[str, object], commands: list[list[str]]) -> None:
    with pytest.raises(UsageError, match="debian-13") as caught:
        debian.build(request(tmp_path, **wrong))
    assert next(iter(wrong)) in caught.value.why
    assert not commands
