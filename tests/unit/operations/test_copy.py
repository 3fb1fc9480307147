"""winlab cp: both directions, both systems, by sftp, with interruptions and hostile names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plans
import pytest
import sftp_peer
from sftp_peer import Peer
from sites import FakeSite

from winlab.adapters.guests import sftp
from winlab.adapters.guests.here import LocalFiles
from winlab.adapters.vm.domains import Machine
from winlab.design.plan import tags
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import GuestError, NotFoundError, UnreachableError, UsageError
from winlab.events import StepProgress
from winlab.operations import copy, look
from winlab.operations.copied import Copied
from winlab.operations.copy import Place

# a thread whose connection was cut would print a traceback to the user
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

LARGE = os.urandom(3 << 20) + bytes(1 << 20)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Peer]]:
    plan = plans.make(plans.KVM, "1-1-1")
    machines = {
        node.name: Machine(f"winlab-lab.{node.name}", "running", tags.of(plan, node), hypervisor=HYPERVISOR)
        for node in plan.nodes
    }

    def find(_lab: str, node: str, _hosts: object) -> Machine:
        if node not in machines:
            raise NotFoundError(f"The lab 'lab' has no node '{node}'.")
        return machines[node]

    monkeypatch.setattr(look, "find_node", find)
    monkeypatch.setattr(copy, "PAUSE", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes").mkdir()
    with sftp_peer.nodes(monkeypatch, plan, tmp_path / "nodes") as peers:
        yield peers


@pytest.fixture
def linux(nodes: dict[str, Peer]) -> Peer:
    return nodes["controller-1"]


@pytest.fixture
def windows(nodes: dict[str, Peer]) -> Peer:
    return nodes["node-1"]


def cp(*words: str, listener: Any = lambda _: None, **more: Any) -> Copied:
    *sources, target = map(Place.parse, words)
    return copy.copy("lab", sources, target, FakeSite(), listener, **more)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("node-1:C:/k/", Place("node-1", "C:/k/")),
        ("node-1:", Place("node-1", "")),
        ("./a:b", Place("", "./a:b")),
        ("/x/a:b", Place("", "/x/a:b")),
        ("a.txt", Place("", "a.txt")),
        (":a", Place("", ":a")),
        ("-", Place("", "-")),
    ],
)
def test_a_colon_after_a_node_makes_a_place_on_it(text: str, place: Place) -> None:
    assert Place.parse(text) == place


def test_a_file_in_and_out_of_linux(linux: Peer, tmp_path: Path) -> None:
    Path("a.sh").write_bytes(LARGE)
    Path("a.sh").chmod(0o4750)
    assert cp("a.sh", "controller-1:") == Copied(1, len(LARGE))
    there = linux.root / "home/winlab/a.sh"
    assert there.read_bytes() == LARGE
    assert stat.S_IMODE(there.stat().st_mode) == 0o750  # it runs as no other user
    assert cp("controller-1:a.sh", "back.sh").files == 1
    assert Path("back.sh").read_bytes() == LARGE
    assert stat.S_IMODE(Path("back.sh").stat().st_mode) == 0o750
    assert list(linux.files()) == ["home/winlab/a.sh"]


@pytest.mark.parametrize("path", ["C:/k/", "C:\\k\\", "/C:/k/", "c:/k/"])
def test_a_folder_with_a_slash_at_its_end_is_made(windows: Peer, path: str) -> None:
    Path("a.txt").write_bytes(b"new")
    cp("a.txt", f"node-1:{path}")
    assert windows.files() == {"C:/k/a.txt": b"new"}
    cp("a.txt", "node-1:C:/k/b.txt")
    assert windows.files()["C:/k/b.txt"] == b"new"
    assert {one.stat().st_mode & 0o077 for one in windows.root.rglob("*.txt")} != {0}  # what the folder passes on


def test_folders_are_copied_with_everything_in_them(windows: Peer) -> None:
    Path("d/e/f").mkdir(parents=True)
    Path("d/e/x").write_text("x")
    Path("d/empty").touch()
    Path("d/link").symlink_to("../elsewhere")
    done = cp("d", "node-1:")
    assert done == Copied(2, 1, (f"{Path.cwd()}/d/link",))
    home = windows.root / "C:/Users/Administrator"
    assert {str(one.relative_to(home)) for one in home.rglob("*")} == {"d", "d/e", "d/e/f", "d/e/x", "d/empty"}
    cp("node-1:d", "new")  # as cp: a target that is missing becomes the folder
    cp("node-1:d", "new")  # one that exists gets it
    assert Path("new/e/x").read_text() == Path("new/d/e/x").read_text() == "x"


def test_wildcards_are_the_nodes(windows: Peer, tmp_path: Path) -> None:
    logs = windows.root / "C:/winlab/logs"
    logs.mkdir(parents=True)
    for name in ("a.log", "B.LOG", ".hidden.log", "c.txt", "x[1].log"):
        (logs / name).write_text(name)
    Path("to").mkdir()
    assert cp("node-1:C:/winlab/logs/*.log", "to").files == 3
    assert sorted(one.name for one in Path("to").iterdir()) == ["B.LOG", "a.log", "x[1].log"]
    assert cp("node-1:C:\\winlab\\*\\[ac].*", "to").files == 2
    cp("node-1:C:/winlab/logs/x[1].log", "one")
    assert Path("one").read_text() == "x[1].log"
    with pytest.raises(NotFoundError, match="Nothing on 'node-1' matches 'C:/winlab/logs/"):
        cp("node-1:C:/winlab/logs/*.zip", "to")


def test_streams(linux: Peer) -> None:
    out = bytearray()
    cp("-", "controller-1:/home/winlab/in", stdin=[b"ab", b"c"])
    assert cp("controller-1:in", "-", stdout=out.extend) == Copied(1, 3)
    assert bytes(out) == b"abc"

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cp("-", "controller-1:in", stdin=broken())
    assert linux.files() == {"home/winlab/in": b"abc"}
    with pytest.raises(UsageError, match="is a folder"):
        cp("-", "controller-1:", stdin=[b""])


def test_from_one_node_to_another(linux: Peer, windows: Peer) -> None:
    (linux.root / "home/winlab/a").write_bytes(LARGE)
    assert cp("controller-1:a", "node-1:C:/").files == 1
    assert windows.files() == {"C:/a": LARGE}


@pytest.mark.parametrize("words", [("a", "b"), ("controller-1:a", "controller-1:b"), ("a",), ("-", "a", "node-1:")])
def test_places_that_do_not_go_together(nodes: dict[str, Peer], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        cp(*words)


def test_several_sources_need_a_folder(linux: Peer) -> None:
    for name in ("a", "b"):
        Path(name).touch()
    with pytest.raises(UsageError, match="'x' is not a folder, and there are 2 sources"):
        cp("a", "b", "controller-1:x")
    assert cp("a", "b", "controller-1:x/").files == 2


@pytest.mark.parametrize("source", ["nosuch", "controller-1:nosuch"])
def test_a_missing_file(linux: Peer, source: str) -> None:
    with pytest.raises(NotFoundError, match="nosuch"):
        cp(source, "controller-1:x" if source == "nosuch" else "x")
    with pytest.raises(NotFoundError, match="no node 'node-9'"):
        cp("node-9:a", "x")


# -- interruptions


def test_a_cut_is_resumed_by_the_same_command(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "TRIES", 0)
    Path("a").write_bytes(LARGE)
    for words, places in ((("a", "controller-1:b"), linux.root), (("controller-1:b", "c"), Path())):
        linux.cut, linux.moved = 2 << 20, 0
        with pytest.raises(UnreachableError):
            cp(*words)
        (part,) = places.rglob(".*.winlab")
        have = part.stat().st_size
        assert 0 < have < len(LARGE)
        assert stat.S_IMODE(part.stat().st_mode) == 0o600  # as long as it is not known who may read it
        linux.first = len(LARGE)
        told: list[Any] = []
        cp(*words, listener=told.append)
        assert any(isinstance(event, StepProgress) and "resumes at" in event.text for event in told)
        assert linux.first >= have - (1 << 20)  # the rest, and what was compared; paramiko may request blocks twice
        assert list(places.rglob(".*.winlab")) == []
    assert Path("c").read_bytes() == LARGE


def test_a_lost_connection_is_made_again(linux: Peer) -> None:
    Path("a").write_bytes(LARGE)
    linux.cut = 1 << 20
    told: list[str] = []
    cp("a", "controller-1:", listener=lambda event: told.append(event.text))
    assert linux.files() == {"home/winlab/a": LARGE}
    assert any("trying again" in text for text in told)
    linux.is_deaf = True
    with pytest.raises(UnreachableError):
        cp("a", "controller-1:")


def test_parts_of_other_contents_are_removed_and_not_used(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "TRIES", 0)
    Path("a").write_bytes(LARGE)
    linux.cut = 1 << 20
    with pytest.raises(UnreachableError):
        cp("a", "controller-1:")
    Path("a").write_bytes(LARGE[::-1] + b"x")
    cp("a", "controller-1:")
    assert linux.files() == {"home/winlab/a": LARGE[::-1] + b"x"}


def test_the_end_of_a_part_is_compared(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut, a file may be longer than what was written to the disk."""
    monkeypatch.setattr(copy, "TRIES", 0)
    Path("a").write_bytes(LARGE)
    linux.cut = 1 << 20
    with pytest.raises(UnreachableError):
        cp("a", "controller-1:")
    (part,) = linux.root.rglob(".*.winlab")
    with part.open("ab") as file:
        file.write(bytes(1000))
    cp("a", "controller-1:")
    assert linux.files() == {"home/winlab/a": LARGE}


def test_a_file_that_shrinks_is_an_error(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    (linux.root / "home/winlab/a").write_bytes(LARGE)
    read = sftp.SftpFiles.read

    def shrink(self: Any, path: str, offset: int, size: int) -> Iterator[bytes]:
        return read(self, path, offset, size - 10)

    monkeypatch.setattr(sftp.SftpFiles, "read", shrink)
    with pytest.raises(GuestError, match="has another size"):
        cp("controller-1:a", "a")
    assert not Path("a").exists()


def test_a_file_without_a_size_is_read_to_its_end(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of /proc."""
    (linux.root / "home/winlab/cpuinfo").write_bytes(b"cpu")
    entry = sftp._entry

    def unknown(name: str, about: Any) -> Any:
        about.st_size = 0
        return entry(name, about)

    monkeypatch.setattr(sftp, "_entry", unknown)
    cp("controller-1:cpuinfo", "x")
    assert Path("x").read_bytes() == b"cpu"


# -- what is not trusted


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..", "a/b"])
def test_a_guests_names_lead_nowhere_else(linux: Peer, name: str, tmp_path: Path) -> None:
    folder = linux.root / "home/winlab/d"
    folder.mkdir()
    (folder / "x").write_text("evil")
    linux.names["x"] = name
    before = sorted(path for path in tmp_path.rglob("*") if "nodes" not in path.parts)
    if name == "..":  # every folder has it
        assert cp("controller-1:d", "to").files == 0
    else:
        with pytest.raises(UsageError, match="can't be copied"):
            cp("controller-1:d", "to")
        assert sorted(path for path in tmp_path.rglob("*") if "nodes" not in path.parts) == before


@pytest.mark.parametrize("name", ["a:b", "con<", "x.", "q?"])
def test_names_that_windows_takes_otherwise_are_refused(windows: Peer, name: str) -> None:
    """A colon names a stream of another file."""
    Path("d").mkdir()
    (Path("d") / name).touch()
    with pytest.raises(UsageError, match="can't be copied"):
        cp("d", "node-1:C:/")
    assert windows.files() == {}


def test_links_are_not_written_through(linux: Peer, tmp_path: Path) -> None:
    (linux.root / "home/winlab/a").write_text("new")
    Path("own").write_text("mine")
    Path("a").symlink_to("own")
    cp("controller-1:a", "a")
    assert (Path("own").read_text(), Path("a").read_text(), Path("a").is_symlink()) == ("mine", "new", False)
    (tmp_path / "to").mkdir()
    system = LocalFiles()  # another user of the host may have put a link in the part's place
    Path("to/.x").symlink_to(tmp_path / "own")
    with pytest.raises(UsageError):
        system.write(str(tmp_path / "to/.x"), 0, [b"evil"])
    assert Path("own").read_text() == "mine"


def test_devices_are_refused(linux: Peer) -> None:
    (linux.root / "home/winlab/a").write_text("x")
    with pytest.raises(UsageError, match="not a regular file"):
        cp("controller-1:a", "/dev/null")


def test_an_endless_folder_and_a_huge_message_are_refused(linux: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    (linux.root / "home/winlab/d").mkdir()
    for name in "abc":
        (linux.root / "home/winlab/d" / name).touch()
    monkeypatch.setattr("winlab.adapters.guests.file_system.MOST_NAMES", 2)
    with pytest.raises(GuestError, match="more than 2 entries"):
        cp("controller-1:d", "to")
    monkeypatch.setattr(sftp, "MOST_MESSAGE", 10)
    with pytest.raises(GuestError, match="sends a message of"):
        cp("controller-1:d/a", "to")


def test_root_reads_what_the_user_can_not(linux: Peer) -> None:
    (linux.root / "etc").mkdir()
    (linux.root / "etc/shadow").write_text("x")
    assert cp("controller-1:/etc/shadow", "s", root=True).files == 1
    assert "sudo -n" in linux.commands[0]
    with pytest.raises(UsageError, match="runs Windows"):
        cp("node-1:C:/x", "s", root=True)
