"""What fuzzing found (tests/fuzz): each of these once ended in a traceback, or took all memory or time."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import isos
import pytest

from winlab.adapters.kube import diagnose, kubeconfig, reading, reduced
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import screen
from winlab.addons import record
from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.engine.durations import Durations
from winlab.errors import ClusterError, GuestError, TransferError, UsageError, WinlabError
from winlab.events import Note
from winlab.lab_folder import LabFolder
from winlab.run import Result
from winlab.steps.linux.system import LinuxSteps
from winlab.supply import download, tars
from winlab.supply.artifacts import store, unpack
from winlab.supply.artifacts.bundle.file import open_bundle
from winlab.supply.images import apt
from winlab.supply.media import offline, wim, windows_iso

BOMB = (
    "x0: &x0 {a: b}\n"
    + "\n".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 8)}]}}" for n in range(1, 30))
    + "\n"
)


class Says(Kubectl):
    """kubectl, if it printed this."""

    def __init__(self, said: str) -> None:
        self._said = said

    def run(self, *words: str, **_: Any) -> str:
        return self._said


def odd_tar(path: Path) -> Path:
    """A sparse file in the format 1.0 of GNU tar, whose map has words for numbers."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        row = tarfile.TarInfo("bin/x")
        row.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.map": "x"}
        archive.addfile(row)
    return path


def test_an_odd_header_of_a_tar_archive(tmp_path: Path) -> None:
    path = odd_tar(tmp_path / "x.tar.gz")
    with pytest.raises(tarfile.TarError), tars.opened(path) as archive:
        list(tars.members(archive))
    with pytest.raises(TransferError, match="can't be unpacked"):
        unpack.members(path, {"bin/x": tmp_path / "x"})
    with pytest.raises(UsageError, match="not a winlab bundle"):
        open_bundle(path)
    with pytest.raises(TransferError, match="list of packages"):
        apt.installed(path)


@pytest.mark.parametrize("text", [BOMB, "[" * 3000, "!!bool x", "users: !!timestamp x"])
def test_untrusted_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not YAML"):
        spec.load(str(path), [])
    with pytest.raises(UsageError):
        recipes.load(path)
    with pytest.raises(GuestError):
        reduced.identity(text, "controller-1")
    with pytest.raises(UsageError):
        kubeconfig.merge(path, "{}", "lab", use=False)


@pytest.mark.parametrize("source", ["9" * 5000 + "-1-1", "\u0661-1-1"])
def test_numbers_in_a_shorthand(source: str) -> None:
    with pytest.raises(UsageError, match="There is no spec"):
        spec.load(source, [])


def test_a_context_that_is_not_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [{name: winlab-lab, context: x}]\n")
    with pytest.raises(UsageError, match="not a kubeconfig"):
        kubeconfig.merge(path, "{}", "lab", use=False)


def test_a_lab_s_own_files_that_are_not_text() -> None:
    lab = LabFolder("lab")
    lab.make()
    lab.kubeconfig.write_bytes(b"\xff")
    (lab.path / "credentials.json").write_bytes(b"\xff")
    for read in (lambda: kubeconfig.read(lab), lab.credentials):
        with pytest.raises(WinlabError, match="damaged"):
            read()


@pytest.mark.parametrize("note", ['["\\u0000"]', '["relative"]', "[1]", "[" * 3000, "{"])
def test_a_damaged_note_of_merged_files(note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    lab = LabFolder("lab")
    lab.write(lab.path / kubeconfig.MERGED, note)
    assert not kubeconfig.forget("lab")


def test_the_journal_continues_on_a_new_line_after_a_torn_one() -> None:
    lab = LabFolder("lab")
    lab.make()
    lab.journal.write_text('{"event": "Not')
    lab.record(Note(text="one"))
    lab.record(Note(text="two"))
    torn, one, two = lab.journal.read_text().splitlines()
    assert torn == '{"event": "Not'
    assert [json.loads(line)["text"] for line in (one, two)] == ["one", "two"]


@pytest.mark.parametrize("value", ["1e999", "NaN", "-5", "true, [1]", '"12"', "9" * 400, "1e300"])
def test_malformed_times(value: str) -> None:
    known = Durations("kvm")
    known.learn("x", "", 5.0)
    known._path.write_text(f'{{"kvm": {{"x": {{"": [{value}]}}}}}}')
    assert known.usual("x") in (None, 1.0)
    known.learn("x", "", 7.0)
    assert known.usual("x") is not None


@pytest.mark.parametrize("said", ["", "[]", "1", "{", "[" * 3000, '"x"'])
def test_an_api_server_that_sends_no_objects(said: str) -> None:
    with pytest.raises(ClusterError, match="not a Kubernetes object"):
        Says(said).get("node", "x")
    if said:
        with pytest.raises(ClusterError):
            record.read(Says(said))


@pytest.mark.parametrize(
    "status", [None, [], "x", {"conditions": "x", "images": 5}, {"conditions": [1, {}], "images": [{"names": 1}, "x"]}]
)
def test_a_node_object_of_another_shape(status: object) -> None:
    node: dict[str, Any] = {"status": status}
    assert not diagnose.is_ready(node)
    assert diagnose.brief(node)
    assert diagnose.signs(node) == frozenset()


@pytest.mark.parametrize("told", ["[]", "{", '{"v1": 5}', '{"v1": {"errors": 5}}', "[" * 3000])
def test_a_result_of_cloud_init_of_another_shape(told: str) -> None:
    system = LinuxSteps.__new__(LinuxSteps)
    system._node = SimpleNamespace(name="node-1")  # type: ignore[assignment]
    with pytest.raises(GuestError, match="can't be read"):
        system.check_first_boot(told)


def test_a_malformed_version() -> None:
    with pytest.raises(ClusterError) as caught:
        reading.version(Says('{"serverVersion": {"gitVersion": "x"}}'))
    assert caught.value.why


@pytest.mark.parametrize("head", [b"P6 - 5 255\n", b"P6 9999999999 1 255\n", b"P6 800 600 255\n", b"P6 \xb2 1 255\n"])
def test_a_screen_of_odd_size(head: bytes) -> None:
    assert screen.signature(head + b"abc") == b""


@pytest.mark.parametrize("mirror", ["http://[", "a" * 5000, "~nobody-such/x", "a\0b"])
def test_malformed_addresses(mirror: str) -> None:
    assert not download.is_open_to_others(mirror)
    with pytest.raises(UsageError):
        download.rewrite("https://x.example/y", mirror)


def test_partitions_beyond_the_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    for content in (b"", b"x", (b"\0" * 512 + offline.GPT).ljust(1024, b"\0") + offline.BASIC_DATA + b"\xff" * 100):
        disk.write_bytes(content)
        assert list(offline.partitions(disk)) == []


def test_partitions_that_name_the_same_bytes_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest writes its disk's tables: 128 rows of one partition would take days."""
    disk, size = tmp_path / "disk.raw", 1000
    row = struct.pack("<16s16xQQ", offline.BASIC_DATA, 100, size - 1).ljust(128, b"\0")
    apart = [struct.pack("<16s16xQQ", offline.BASIC_DATA, at, at).ljust(128, b"\0") for at in range(40, 60)]
    content = bytearray(size * 512)
    content[512 : 512 + 8] = offline.GPT
    content[1024 : 1024 + 128 * 128] = b"".join([*apart, *[row] * 108])
    for at in (*range(40, 60), 100):
        content[at * 512 + 3 : at * 512 + 11] = offline.NTFS
    disk.write_bytes(content)
    read: list[str] = []

    def run(words: list[object], **_: object) -> Result:
        if "convert" in words and str(words[-2]).startswith("json:"):
            read.append(str(words[-2]))
            Path(str(words[-1])).touch()
        elif "convert" in words:
            Path(str(words[-1])).write_bytes(content)
        return Result((), 0, '{"required": 1}', "", 0.0)

    monkeypatch.setattr(offline.run, "run", run)
    monkeypatch.setattr(offline.run, "head", lambda *_: None)
    assert offline.read(disk, ["a"], tmp_path) == {}
    assert len(read) == offline.PARTITIONS
    assert f'"offset": {100 * 512}' in read[0]  # the largest, once
    assert f'"offset": {100 * 512}' not in read[1]


def test_a_medium_that_ends_before_its_boot_catalog(tmp_path: Path) -> None:
    record = b"\0CD001\1EL TORITO SPECIFICATION".ljust(0x47, b"\0") + b"\xff\xff\xff\x7f"
    for content in (bytes(17 * 2048) + record, bytes(17 * 2048) + record[:60]):
        (tmp_path / "x.iso").write_bytes(content)
        assert windows_iso.boot_entries(tmp_path / "x.iso") == []


@pytest.mark.parametrize(("images", "says"), [(1001, "1,000 images"), (1 << 18, "bytes")])
def test_a_list_of_images_that_is_too_long(images: int, says: str) -> None:
    xml = b"\xff\xfe" + ("<WIM>" + "<IMAGE/>" * images + "</WIM>").encode("utf-16-le")
    head = bytearray(isos.make_wim(["Windows"])[:208])
    struct.pack_into("<QQQ", head, wim.XML_RESOURCE, len(xml), 208, len(xml))
    with pytest.raises(UsageError, match="image list") as caught:
        wim.read_images(io.BytesIO(bytes(head) + xml), "x.wim")
    assert says in caught.value.why
    assert len(wim.read_images(io.BytesIO(isos.make_wim([f"Windows {n}" for n in range(60)])), "x.wim")) == 60


@pytest.mark.parametrize("index", ["x", "\u00b2", "9" * 5000])
def test_malformed_numbers_of_a_wim(index: str, tmp_path: Path) -> None:
    text = isos.make_wim(["Windows"])[208:].decode("utf-16-le")
    body = text.replace('INDEX="1"', f'INDEX="{index}"').replace("20348", index).encode("utf-16-le")
    head = bytearray(isos.make_wim(["Windows"])[:208])
    head[0x48:0x60] = len(body).to_bytes(8, "little") + (208).to_bytes(8, "little") + len(body).to_bytes(8, "little")
    (tmp_path / "x").write_bytes(bytes(head) + body)
    with (tmp_path / "x").open("rb") as file:
        (image,) = wim.read_images(file, "x")
    assert (image.index, image.build) == (0, None)


def test_an_artifact_of_no_system_is_missing(tmp_path: Path) -> None:
    place = store._store().folder("files") / ("0" * 64)
    place.mkdir()
    (place / "x").write_bytes(b"abc")
    about = {"file": "x", "size": 3, "sha256": "a", "origin": "x", "made": "x", "seconds": 1}
    (place / "manifest.json").write_text(
        json.dumps({**about, "artifact": {"kind": "program", "name": "x", "version": "v1", "os": "plan9"}})
    )
    assert store.entries() == []


@pytest.mark.parametrize("kind", ["name", "linkname", "extras", "extras for all"])
def test_long_names_of_an_archive_do_not_fill_the_memory(tmp_path: Path, kind: str) -> None:
    """Packed, 400 names of 4 MiB are a file of 1.6 MB."""
    path, long = tmp_path / "x.tar", "x" * (tars.LARGEST_EXTRAS + 1)
    headers = {"comment": long} if kind == "extras for all" else {}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        member = tarfile.TarInfo(long if kind == "name" else "a")
        if kind == "linkname":
            member.type, member.linkname = tarfile.SYMTYPE, long
        if kind == "extras":
            member.pax_headers = {"comment": long}
        archive.addfile(member)
    with pytest.raises(tarfile.TarError, match=r"characters|too long"), tars.opened(path) as archive:
        list(tars.members(archive))


def test_the_names_of_an_archive_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(100):
            archive.addfile(tarfile.TarInfo(f"{number:03}" + "x" * 300))
    with tars.opened(path) as archive:
        for _ in tars.members(archive):
            assert archive.members == []  # type: ignore[attr-defined]
    monkeypatch.setattr(tars, "LARGEST_NAMES", 20_000)
    with pytest.raises(tarfile.TarError, match="very long names"), tars.opened(path) as archive:
        list(tars.members(archive))
