"""A protected lab: who sees it, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from commands import run as winlab
from switched import Played, lab

from winlab import Lab, account
from winlab.adapters.vm import protected
from winlab.errors import ConflictError, NotFoundError
from winlab.events import ignore
from winlab.operations import destroy, protect
from winlab.operations.snapshot import copying
from winlab.site import Site
from winlab.snapshots import Id


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    with lab(monkeypatch) as there:
        monkeypatch.setattr(Site, "hypervisors", there.lab.site.hypervisors)
        monkeypatch.setattr(Site, "storage", there.lab.site.hypervisors)
        monkeypatch.setattr(account, "name", lambda _uid: "ann")
        yield there


def test_all_machines_of_the_lab_record_it(played: Played) -> None:
    own = Lab("lab")
    assert own.protected_by() is None
    own.protect()
    assert own.protected_by() == "ann"
    (host,) = played.lab.hypervisors
    machines = played.lab.machines()
    assert [protected.read(host.conn, one) for one in machines] == ["ann", "ann"]
    protected.write(host.conn, machines[0], "lab", None)  # as of a node that was made later
    assert own.protected_by() == "ann"
    own.protect(wanted=False)
    assert own.protected_by() is None


@pytest.mark.parametrize(
    "lose",
    [
        lambda: destroy.destroy("lab", Site(), ignore),
        lambda: destroy.destroy("lab", Site(), ignore, anyone=True),
        lambda: copying.reset(Id("lab", "clean"), "lab", Site(), ignore),
    ],
)
def test_what_loses_data_is_refused(played: Played, lose: Callable[[], object]) -> None:
    Lab("lab").protect()
    with pytest.raises(ConflictError, match="'lab' is protected by ann; nothing was touched") as refused:
        lose()
    assert refused.value.cure == "'winlab protect lab --off' ends the protection."
    assert len(played.lab.machines()) == 2


def test_there_must_be_such_a_lab(played: Played) -> None:
    with pytest.raises(NotFoundError, match="There is no lab 'other'"):
        Lab("other").protect()


def test_a_record_without_a_name_protects_too(played: Played) -> None:
    (host,) = played.lab.hypervisors
    protected.RECORDS.write(host.conn, played.lab.machines()[0], "lab", [{"of": "another version"}])
    with pytest.raises(ConflictError, match="'lab' is protected; nothing was touched"):
        protect.refuse("lab", played.lab.hypervisors)


def test_the_command(played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert winlab(monkeypatch, "protect", "lab") == 0
    assert capsys.readouterr().out == "The lab 'lab' is protected now.\n"
    assert winlab(monkeypatch, "destroy", "lab") == 6
    assert "'winlab protect lab --off'" in capsys.readouterr().err
    assert winlab(monkeypatch, "protect", "--off", "-o", "json") == 0
    assert '"protected": false' in capsys.readouterr().out
    assert Lab("lab").protected_by() is None
