"""The archive for support: whatever fails or never answers is listed, and no secret gets in."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plans
import pytest
import results
from commands import ran
from isos import SERVER, make_server_medium
from lab_fakes import machine

from winlab import Lab, Site
from winlab.adapters.vm.domains import Machine
from winlab.design.plan.credentials import Credentials
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, GuestError, HostError, UsageError, WinlabError
from winlab.events import Event, Note, Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import look, planning, recorded, support, support_secrets, support_sources
from winlab.operations.support_sources import File, Source
from winlab.supply.images import windows_media

KEY = "AAAA1-BBBBB-CCCCC-DDDDD-EEEEE"
PASSWORD = "of-the-proxy"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabFolder:
    """A lab's folder with everything that is secret about it; no host, no machines."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WINLAB_SUPPORT_SECONDS", "20")
    made = LabFolder("lab")
    proposal = planning.make(
        Spec.load(
            "1-1-1", [f"workers.product_key={KEY}", f"network.proxy.http=http://me:{PASSWORD}@proxy.example:3128"]
        ),
        "lab",
        plans.TCG,
        Quiet(),
    )
    made.ensure_credentials(proposal.plan)
    recorded.write(made, proposal)
    client = {
        "client-key-data": base64.b64encode(made.credentials().ssh_key.encode()).decode(),
        "token": "bear-with-me",
    }
    made.write(made.kubeconfig, json.dumps({"users": [{"name": "winlab-lab", "user": client}]}))
    monkeypatch.setattr(support_sources, "shared", lambda site: [])
    monkeypatch.setattr(support_sources, "_northbound", lambda lab, site: {})
    monkeypatch.setattr(support_sources, "_asker", lambda folder, path, words: lambda: [File(path, b"Ready\n")])
    monkeypatch.setattr(look, "machines", lambda lab, site: [])
    return made


def values(made: Credentials) -> list[str]:
    nodes = made.nodes.values()
    return [
        made.administrator_password,
        *(one for node in nodes for one in (node.vnc_password, node.pfx_password) if one),
        *(line for key in (made.ssh_key, *(node.host_key for node in nodes)) for line in key.splitlines()[3:5]),
        KEY,
        PASSWORD,
        "bear-with-me",
    ]


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {row.name.partition("/")[2]: archive.extractfile(row).read() for row in archive}  # type: ignore[union-attr]


def manifest(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(contents(path)["manifest.json"])
    return made


def playing(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> None:
    monkeypatch.setattr(support_sources, "shared", lambda site: list(sources))


def test_contents_of_the_archive(folder: LabFolder) -> None:
    folder.write(folder.journal, '{"event": "RunStarted"}\n')
    (folder.path / "evidence/node-1").mkdir(parents=True)
    (folder.path / "evidence/node-1/screen.png").write_bytes(b"\x89PNG")
    path = Lab("lab").support()
    there = contents(path)
    assert {"README.txt", "manifest.json", "spec.json", "plan.json", "journal.jsonl", "cluster/nodes.txt"} <= set(there)
    assert {"rendered/node-1/domain.xml", "evidence/node-1/screen.png", "network/northbound.json"} <= set(there)
    assert json.loads(there["plan.json"])["lab"] == "lab"
    assert json.loads(there["spec.json"])["workers"][0]["product_key"] == "<product key>"
    assert json.loads(there["spec.json"])["network"]["proxy"]["http"] == "http://<secret>@proxy.example:3128"
    said = manifest(path)
    assert {row["path"]: row["bytes"] for row in said["files"]} == {
        name: len(content) for name, content in there.items() if name not in ("README.txt", "manifest.json")
    }
    assert [one["what"] for one in said["missing"]] == ["machines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.parent == folder.path.parent.parent / "support"  # destroy leaves it


def test_no_secret_gets_in(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted where each could be: a journal, a log of a guest, a name, a reason, evidence."""
    planted = values(folder.credentials())
    forms: list[Callable[[str], str]] = [
        str,
        lambda one: base64.b64encode(one.encode()).decode(),
        lambda one: base64.b64encode(one.encode("utf-16-le")).decode(),
        lambda one: json.dumps({"it": one}),
    ]
    text = "\n".join(form(one) for one in planted for form in forms)
    folder.write(folder.journal, text)

    def refusing() -> list[File]:
        raise HostError(f"It said {planted[0]}.", why=text)

    playing(
        monkeypatch,
        Source("guest", lambda: [File("guest.log", text.encode("utf-16"))]),
        Source(f"a source with {planted[0]}", refusing),
    )
    path = Lab("lab").support(failed=GuestError(f"'x' failed: {planted[1]}", why=text))
    every = contents(path)
    assert {"guest.log", "failure.json", "journal.jsonl"} <= set(every)
    for content in every.values():
        for one in planted:
            for form in forms:
                assert form(one).encode() not in content
    assert b"[secret administrator password]" in every["guest.log"]
    assert b"[secret design spec workers 1 product key]" in every["journal.jsonl"]


def test_names_of_parts_have_no_secret_and_pictures_stay_as_they_are(
    folder: LabFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, picture = folder.credentials().administrator_password, b"\x89PNG" + bytes(range(256))
    playing(monkeypatch, Source("other", lambda: [File(f"{secret}.txt", b"x"), File("other.png", picture)]))
    path = Lab("lab").support()
    there = contents(path)
    assert there["other.png"] == picture
    assert there["[secret administrator password].txt"] == b"x"
    assert secret not in str(there.keys())
    assert secret.encode() not in there["manifest.json"]


def test_failed_and_unanswered_questions_are_listed(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def half() -> Iterator[File]:
        yield File("half.txt", b"the first part\n")
        raise GuestError("The node said no.", why="It is tired.", cure="Sleep.")

    def hang() -> list[File]:
        never.wait(60)
        return [File("late.txt", b"")]

    def broken() -> list[File]:
        raise KeyError("bug")

    playing(monkeypatch, Source("half", half), Source("hang", hang), Source("broken", broken))
    monkeypatch.setattr(support, "LIMIT", 5.0)
    notes: list[Event] = []
    path = Lab("lab").support(listener=notes.append)
    never.set()
    reasons = {one["what"]: one["why"] for one in manifest(path)["missing"]}
    assert reasons["half"] == "The node said no. It is tired."
    assert "did not answer" in reasons["hang"]
    assert reasons["broken"] == "KeyError: 'bug'"
    there = contents(path)
    assert there["half.txt"] == b"the first part\n"
    assert "late.txt" not in there
    assert b"hang: It did not answer" in there["README.txt"]
    assert [one.text for one in notes if isinstance(one, Note)]


def test_machines_that_are_off_are_not_asked(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    off = machine("node-1", state="off")
    names = [source.name for source in support_sources.of_machine(off, Site())]
    known = ["domain of node-1", "QEMU's log of node-1", "serial port of node-1", "earlier screens of node-1"]
    assert names == known
    crashed = [one.name for one in support_sources.of_machine(machine("node-1", state="crashed"), Site())]
    assert crashed == [*known, "screen of node-1", "crash of node-1"]
    asked: list[str] = []

    def of_machine(one: Machine, site: object, within: str) -> list[Source]:
        asked.append(one.tag.node)
        return []

    monkeypatch.setattr(look, "machines", lambda lab, site: [off, machine("node-2")])
    monkeypatch.setattr(support_sources, "of_machine", of_machine)
    path = Lab("lab").support()
    assert asked == ["node-1", "node-2"]
    assert {"what": "screen and logs in node-1", "why": "The machine is off."} in manifest(path)["missing"]


def test_without_libvirt(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lab: str, site: object) -> list[Machine]:
        raise HostError("libvirt does not answer.")

    monkeypatch.setattr(look, "machines", refuse)
    path = Lab("lab").support()
    assert {"what": "machines", "why": "libvirt does not answer."} in manifest(path)["missing"]
    assert "plan.json" in contents(path)


def test_only_the_end_of_a_long_log_from_a_line_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_sources, "MOST", 10)
    assert support_sources.end_of(b"0123456789", cut=False) == (b"0123456789", False)
    assert support_sources.end_of(b"secret\nabc\nde\n", cut=False) == (b"abc\nde\n"[-7:], True)
    assert support_sources.end_of(b"half a secret\nabc\n", cut=True) == (b"abc\n", True)
    assert support_sources.end_of(b"x" * 50, cut=False) == (b"", True)


def test_too_much_is_left_out(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "TOTAL", 300_000)
    playing(monkeypatch, Source("log", lambda: [File("large.log", b"x\n" * 200_000), File("small.log", b"x\n")]))
    path = Lab("lab").support()
    assert "large.log" not in contents(path)
    assert "small.log" in contents(path)
    assert {"what": "large.log", "why": "The archive would become too large."} in manifest(path)["missing"]


def test_names_in_the_archive_stay_in_it() -> None:
    assert support_sources._safe("../../etc/passwd") == "etc/passwd"
    assert support_sources._safe("/a//./b\x1b[31m\\c") == "a/b__31m/c"


def test_the_last_three_are_kept(folder: LabFolder) -> None:
    other = support.folder() / "lab-2-20260101T000000Z.tar.gz"
    other.parent.mkdir(parents=True)
    other.touch()
    stump = support.folder() / ".lab-20260101T000000Z.tar.gz.abc"  # of a winlab that was killed
    stump.mkdir()
    os.utime(stump, (0, 0))
    made = [Lab("lab").support() for _ in range(5)]
    assert sorted(support.folder().iterdir()) == sorted([*made[2:], other])


def test_a_file_name_of_the_user(folder: LabFolder, tmp_path: Path) -> None:
    path = tmp_path / "it.tar.gz"
    path.write_text("old")
    assert Lab("lab").support(path) == path
    assert "plan.json" in contents(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not support.folder().exists()
    for wrong in (tmp_path, tmp_path / "none" / "it.tar.gz", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="can't be written"):
            Lab("lab").support(wrong)


@pytest.mark.parametrize(("named", "where"), [(True, "_pack"), (False, "_pack"), (False, "Path.mkdir")])
def test_without_space_there_is_a_cure(
    named: bool, where: str, folder: LabFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N25: it was exit code 7, without a cure."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"winlab.operations.support.{where}", fail)
    with pytest.raises(HostError, match="can't be") as caught:
        Lab("lab").support(tmp_path / "a.tar.gz" if named else None)
    assert caught.value.cure == "Free some space, or name a file elsewhere with --to."


def test_a_state_folder_that_cannot_be_written(folder: LabFolder) -> None:
    support.folder().write_text("a file")
    with pytest.raises(AccessError, match="can't be made"):
        Lab("lab").support()


def test_a_name_that_leads_out_of_the_folder(folder: LabFolder) -> None:
    with pytest.raises(UsageError):
        Lab("../../etc").support()


def test_a_lab_without_anything_on_this_host(folder: LabFolder) -> None:
    path = Lab("other").support()
    said = {one["what"]: one["why"] for one in manifest(path)["missing"]}
    assert said["machines"] == "The lab 'other' has none."
    assert "no record" in said["spec and plan"]


def test_secrets_of_damaged_files(folder: LabFolder) -> None:
    """A power cut may have left half of one: what is in it counts all the same."""
    planted = folder.credentials()
    path = folder.path / "credentials.json"
    path.write_text(path.read_text()[:-20])
    found, problems = support_secrets.of(folder)
    assert problems == []
    assert planted.administrator_password in found.values()
    assert planted.ssh_key in found.values()


def test_an_error_about_damaged_credentials_repeats_none(folder: LabFolder) -> None:
    secret = folder.credentials().administrator_password
    path = folder.path / "credentials.json"
    for text in (path.read_text()[:-20], f'{{"administrator_password": "{secret}"}}', f'"{secret}"'):
        path.write_text(text)
        with pytest.raises(WinlabError, match="damaged") as caught:
            folder.credentials()
        assert secret not in str(caught.value)


def test_builders_of_golden_images_belong_to_it(folder: LabFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (builder,) = recorded.read(folder).plan.builders
    other = LabFolder(builder.lab)
    secret = other.ensure_credentials(builder).administrator_password
    other.write(other.journal, f"it is {secret}\n")
    path = Lab("lab").support()
    assert contents(path)[f"builders/{builder.lab}/journal.jsonl"] == (
        f"it is [secret {builder.lab} administrator password]\n".encode()
    )


def standing(folder: LabFolder, *changes: str) -> None:
    """The lab's record, of a spec with these changes."""
    spec = Spec.load("1-1-1", list(changes), rehearse=False)
    recorded.write(folder, planning.make(spec, "lab", plans.TCG, Quiet()))


def test_the_list_of_images_of_a_medium_of_the_user(folder: LabFolder, tmp_path: Path) -> None:
    medium = make_server_medium(tmp_path / "w.iso")
    standing(folder, f"workers.media={medium}")
    (name,) = (name for name in contents(Lab("lab").support()) if name.startswith("media/"))
    told = json.loads(contents(Lab("lab").support())[name])
    assert [image["name"] for image in told["images"]] == [SERVER]
    assert [image["index"] for image in told["setup"]] == [1, 2]
    printed = ran("iso", "inspect", str(medium), "--output", "json")
    assert results.item(printed.stdout) == {"name": str(medium), **told}
    medium.write_text("another")
    (why,) = (one["why"] for one in manifest(Lab("lab").support())["missing"] if one["what"] == "Windows media")
    assert "w.iso" in why


def test_the_list_of_images_of_a_cached_medium(
    folder: LabFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[Path] = []
    monkeypatch.setattr(windows_media, "at_hand", lambda node, stock: there[0] if there else None)
    path = Lab("lab").support()  # there is a golden image, and the medium has gone
    assert not [name for name in contents(path) if name.startswith("media/")]
    assert "Windows media" not in [one["what"] for one in manifest(path)["missing"]]
    there.append(make_server_medium(tmp_path / "w.iso"))
    told = json.loads(contents(Lab("lab").support())["media/windows-2022.json"])
    assert (told["release"], [image["name"] for image in told["images"]]) == ("2022", [SERVER])
