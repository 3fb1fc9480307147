"""A host of a site whose file of facts is damaged, missing, or of a winlab that does not know sites."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from winlab.design.plan.facts import HostFacts
from winlab.errors import HostError
from winlab.events import Quiet
from winlab.host import facts
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import own_facts, relay
from winlab.run import CommandError, Result

PLACE = "ssl:198.51.100.1:6642"
TARGET = json.dumps([{"rows": [{"target": "pssl:6642:198.51.100.1"}]}])


class Disk:
    """The files of a host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.facts = folder / "host.yaml"
        self.record = Record(folder / "changes.yaml")
        self.database = TARGET  # what ovsdb-tool prints of it
        monkeypatch.setattr(program, "DATABASE", folder / "relay.db")
        monkeypatch.setattr(relay, "AUTHORITY_KEY", folder / "authority-key.pem")
        monkeypatch.setattr(own_facts, "run", self.query)
        read = facts.read_facts
        monkeypatch.setattr(facts, "read_facts", lambda: read(self.facts))

    def query(self, args: list[str | Path], **_more: object) -> Result:
        result = Result(tuple(map(str, args)), 0 if self.database else 1, self.database, "unexpected file format", 0.0)
        if result.returncode:
            raise CommandError(result)
        return result

    def read(self, *, force: bool = False) -> HostFacts:
        return own_facts.read(self.record, Quiet(), force=force)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    return Disk(monkeypatch, tmp_path)


@pytest.mark.parametrize("text", ["", "datapath: no such\n", "later: 1\n", "[", None])
def test_a_host_without_a_site_is_set_up_whatever_its_file_says(disk: Disk, text: str | None) -> None:
    if text is not None:
        disk.facts.write_text(text)
    assert disk.read() == HostFacts()


@pytest.mark.parametrize("text", ["", "datapath: no such\n", "later: 1\n", "["])
@pytest.mark.parametrize("evidence", ["authority-key.pem", "relay.db"])
def test_a_first_host_does_not_become_a_single_one(disk: Disk, text: str, evidence: str) -> None:
    disk.facts.write_text(text)
    disk.facts.with_name(evidence).touch()
    with pytest.raises(HostError, match="where other hosts of its site reach this one") as caught:
        disk.read()
    assert str(disk.facts) in caught.value.why
    assert "--external-cidr" in caught.value.cure
    assert disk.read(force=True).southbound == (PLACE if evidence == "relay.db" else "")


@pytest.mark.parametrize("known", [HostFacts(chassis="c1", external_cidr="10.9.0.0/20"), None])
def test_what_an_earlier_winlab_left_out_is_read_from_the_relay(disk: Disk, known: HostFacts | None) -> None:
    if known is not None:
        facts.write_facts(known, disk.facts)
    program.DATABASE.touch()
    found = disk.read()
    assert found.southbound == PLACE
    assert found.recorded is (known is not None)
    assert found.external_cidr == (known or HostFacts()).external_cidr


@pytest.mark.parametrize("text", ["", "[]", "[{}]", '[{"rows": []}]', '[{"rows": [{"target": "x"}]}]', "{}", "["])
def test_a_damaged_database_of_the_relay_is_not_guessed_about(disk: Disk, text: str) -> None:
    facts.write_facts(HostFacts(chassis="c1"), disk.facts)
    program.DATABASE.touch()
    disk.database = text
    with pytest.raises(HostError, match="can't be used") as caught:
        disk.read()
    assert "backup" in caught.value.cure
    assert disk.read(force=True).southbound == ""


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.write_text(""), lambda path: path.unlink(), lambda path: path.write_text("datapath: system\n")],
)
def test_a_member_does_not_become_a_host_of_its_own(disk: Disk, damage: Callable[[Path], None]) -> None:
    known = HostFacts(chassis="c2", joined="ann@h1", southbound=PLACE)
    facts.write_facts(known, disk.facts)
    disk.record.mark("ssl")
    assert disk.read() == known.model_copy(update={"recorded": True})
    damage(disk.facts)
    with pytest.raises(HostError, match="which site this host has joined") as caught:
        disk.read()
    assert caught.value.why
    assert "--join SITE" in caught.value.cure
    assert not disk.read(force=True).joined


def test_the_facts_are_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    facts.write_facts(HostFacts(), tmp_path / "host.yaml")
    assert len(synced) == 1
