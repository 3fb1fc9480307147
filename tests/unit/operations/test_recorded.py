"""What a lab was made from can be read back, whatever the spec holds."""

from __future__ import annotations

import stat
from pathlib import Path

import plans
import pytest

from winlab.design import spec as specs
from winlab.design.spec.model import Spec
from winlab.errors import NotFoundError, WinlabError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import planning, recorded
from winlab.operations.planning import Proposal

KEY = "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabFolder:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    return LabFolder("lab")


def proposal(source: str = "1-1-1", *changes: str) -> Proposal:
    return planning.make(Spec.load(source, changes), "lab", plans.TCG, Quiet())


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        *((name, ()) for name in specs.names()),
        ("1-1-1", ("linux_workers.count=2", "network.reach=labs", "controllers.count=3", "workers.count=2")),
        ("1-1-1", ("addons.metrics-server={}", f"workers.product_key={KEY}")),
    ],
)
def test_a_record_survives_a_round_trip(folder: LabFolder, source: str, changes: tuple[str, ...]) -> None:
    made = proposal(source, *changes)
    recorded.write(folder, made)
    back = recorded.read(folder)
    assert back.plan == made.plan
    assert back.plan.digest == made.plan.digest
    assert back.restored_spec() == made.spec
    again = planning.make(back.restored_spec(), "lab", plans.TCG, Quiet())
    assert again.plan == made.plan


def test_folders_that_links_may_lead_into_are_recorded_too(folder: LabFolder, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("workers: {count: 1}\n")
    made = planning.make(Spec.load(str(tmp_path / "own.yaml"), allow=["/srv"]), "lab", plans.TCG, Quiet())
    recorded.write(folder, made)
    assert recorded.read(folder).restored_spec().roots == (tmp_path.resolve(), Path("/srv"))


def test_only_the_owner_can_read_a_record(folder: LabFolder) -> None:
    recorded.write(folder, proposal())
    assert stat.S_IMODE(folder.design.stat().st_mode) == 0o600


def test_a_lab_without_a_record(folder: LabFolder) -> None:
    with pytest.raises(NotFoundError, match="no record") as caught:
        recorded.read(folder)
    assert "winlab create" in caught.value.cure


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', "\0", '{"version": 1, "spec": {"workers": "KEY"}}'])
def test_a_damaged_record(folder: LabFolder, text: str) -> None:
    folder.write(folder.design, text)
    with pytest.raises(WinlabError, match="damaged, or of another version") as caught:
        recorded.read(folder)
    assert str(folder.design) in str(caught.value.evidence)
    assert "KEY" not in str(caught.value)


def test_a_damaged_record_keeps_the_secret(folder: LabFolder) -> None:
    recorded.write(folder, proposal("1-1-1", f"workers.product_key={KEY}"))
    text = folder.design.read_text()
    assert KEY in text  # the guests' answer files need it
    folder.write(folder.design, text.replace('"hypervisors":1', '"hypervisors":2').replace('"lab": "lab"', '"lab": 1'))
    with pytest.raises(WinlabError) as caught:
        recorded.read(folder)
    assert KEY not in str(caught.value)


def test_bytes_that_are_not_text(folder: LabFolder) -> None:
    folder.make()
    folder.design.write_bytes(b"\xff\xfe")
    with pytest.raises(WinlabError, match="damaged"):
        recorded.read(folder)


def test_pools_of_every_system_are_recorded(folder: LabFolder, tmp_path: Path) -> None:
    """A pool refuses fields of another system, even with their usual values."""
    pools = "[{name: win, os: windows-2022}, {name: deb, os: debian-13, cpus: 4}]"
    (tmp_path / "own.yaml").write_text(f"workers: {pools}\n")
    made = planning.make(Spec.load(str(tmp_path / "own.yaml")), "lab", plans.TCG, Quiet())
    recorded.write(folder, made)
    assert recorded.read(folder).restored_spec() == made.spec


def test_a_change_that_began_has_both_and_ends_with_one(folder: LabFolder) -> None:
    old, new = proposal(), proposal("1-2-1")
    recorded.write(folder, old)
    assert recorded.standing(folder) == (old.plan,)
    recorded.begin(folder, new)
    held = recorded.read(folder)
    assert (held.restored_spec(), held.wanted.restored_spec()) == (old.spec, new.spec)
    assert recorded.standing(folder) == (old.plan, new.plan)
    recorded.begin(folder, new)
    assert recorded.standing(folder) == (old.plan, new.plan), "the same change again"
    recorded.write(folder, new)
    assert recorded.standing(folder) == (new.plan,)
    assert recorded.read(folder).applying is None


def test_changes_that_were_interrupted_are_not_forgotten(folder: LabFolder) -> None:
    first, second, third = proposal(), proposal("1-2-1"), proposal("1-3-1")
    recorded.write(folder, first)
    for one in (second, third, second):
        recorded.begin(folder, one)
    assert {plan.digest for plan in recorded.standing(folder)} == {one.plan.digest for one in (first, second, third)}
    assert recorded.standing(folder)[0] == first.plan
    assert recorded.standing(folder)[-1] == second.plan


def test_nothing_is_begun_without_a_record(folder: LabFolder) -> None:
    with pytest.raises(NotFoundError):
        recorded.begin(folder, proposal())
    assert recorded.standing(folder) == ()
