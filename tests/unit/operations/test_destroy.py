"""destroy removes everything of a lab; what can't be removed is reported, and the folder stays for a second try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import plans
import pytest
import sites

from winlab import account, journal
from winlab.adapters import traces
from winlab.adapters.kube import kubeconfig
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import connection, domains, protected
from winlab.design.plan import tags
from winlab.errors import ConflictError, HostError, LabError, WinlabError
from winlab.events import Event, Note, StepDone
from winlab.operations import destroy, making
from winlab.site import Site

Report = Callable[..., None]


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[WinlabError]:
    """A host without machines; what is put into the list can't be removed."""
    found: list[WinlabError] = []

    @contextmanager
    def connected(_uri: str) -> Iterator[None]:
        yield None

    def remove(lab: str, _hosts: object, _overlay: object, gone: Report, left: Report) -> object:
        gone("network", lab)
        left("volume", f"{lab}.mine.qcow2", traces.USERS)
        for drive in ("disk", "store"):
            left("volume", f"{lab}.node-1.{drive}.qcow2", f"needed by '{lab}@ready'")
        return list(found)

    monkeypatch.setattr(connection, "connected", connected)
    monkeypatch.setattr(domains, "machines", lambda *_: [])
    monkeypatch.setattr(ovn, "connect", lambda *_: nullcontext(SimpleNamespace(lab_owner=lambda _: None)))
    monkeypatch.setattr(traces, "remove", remove)
    return found


def test_the_folder_is_removed_last_and_reported(problems: list[WinlabError]) -> None:
    site = Site()
    events: list[Event] = []
    site.folder("ci").write(site.folder("ci").journal, "{}")
    assert destroy.destroy("ci", site, events.append) == ["network ci", f"folder {site.folder('ci').path}"]
    assert not site.folder("ci").path.exists()
    assert [event.text for event in events if isinstance(event, Note)] == [
        "The volume 'ci.mine.qcow2' was left alone: winlab did not make it.",
        "2 volumes were left alone: needed by 'ci@ready'.",
    ]
    assert len(events) == 4


def test_what_can_t_be_removed_is_reported_and_the_folder_stays(
    problems: list[WinlabError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(_lab: str) -> bool:
        raise HostError("the kubeconfig is locked")

    monkeypatch.setattr(kubeconfig, "forget", forget)
    problems.append(HostError("OVN does not answer"))
    site = Site()
    site.folder("ci").write(site.folder("ci").journal, "{}")
    with pytest.raises(LabError) as failed:
        destroy.destroy("ci", site, lambda _event: None)
    assert [str(one) for one in failed.value.exceptions] == ["OVN does not answer", "the kubeconfig is locked"]
    told = journal.read(site.folder("ci").journal)
    assert [event.step for event in told if isinstance(event, StepDone)] == ["remove network ci"]


PLAN = plans.make(plans.KVM, "1-1-1", lab="ci")


def made_by(monkeypatch: pytest.MonkeyPatch, *uids: int | None, network: int | None = None) -> None:
    monkeypatch.setattr(protected, "read", lambda *_: None)
    """The lab has machines of these users, and a network of that one; this is the user 1234567."""
    there = [
        domains.Machine(node.domain, "running", tags.of(PLAN, node).model_copy(update={"uid": uid}), False)
        for node, uid in zip(PLAN.nodes, uids, strict=False)
    ]
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    monkeypatch.setattr(domains, "machines", lambda *_: there)
    monkeypatch.setattr(ovn, "connect", lambda *_: nullcontext(SimpleNamespace(lab_owner=lambda _: network)))


@pytest.mark.parametrize(("uids", "network"), [((0, 0), None), ((0, None), None), ((), 0)])
def test_a_lab_of_another_user_is_left_alone(
    problems: list[WinlabError], monkeypatch: pytest.MonkeyPatch, uids: tuple[int | None, ...], network: int | None
) -> None:
    """Everyone's first lab is called 'lab'."""
    made_by(monkeypatch, *uids, network=network)
    monkeypatch.setattr(traces, "remove", lambda *_: pytest.fail("it was touched"))
    with pytest.raises(ConflictError, match="'ci' belongs to root") as caught:
        destroy.destroy("ci", Site(), lambda _event: None)
    assert "--anyone" in caught.value.cure
    assert not Site().folder("ci").path.exists()


@pytest.mark.parametrize(
    ("uids", "network"), [((1234567, 1234567), 0), ((None, None), 0), ((), None), ((0, 1234567), 0)]
)
def test_the_user_s_own_lab_and_one_without_an_owner_are_removed(
    problems: list[WinlabError], monkeypatch: pytest.MonkeyPatch, uids: tuple[int | None, ...], network: int | None
) -> None:
    made_by(monkeypatch, *uids, network=network)
    assert destroy.destroy("ci", Site(), lambda _event: None) == ["network ci"]


def test_the_lab_of_anyone_is_removed_if_the_user_says_so(
    problems: list[WinlabError], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by(monkeypatch, 0)
    assert destroy.destroy("ci", Site(), lambda _event: None, anyone=True) == ["network ci"]


def test_another_user_s_lab_of_the_same_name_is_not_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = plans.make(plans.KVM, "1-1-1", "workers.cpus=7", lab="ci")
    made_by(monkeypatch, 0, 0)
    with pytest.raises(ConflictError, match="belongs to root") as caught:
        making.refuse_other_plan(other, sites.FakeSite().each)
    assert "--lab NAME" in caught.value.cure
    assert "destroy" not in caught.value.cure
    made_by(monkeypatch, 1234567, None)
    with pytest.raises(ConflictError, match="made from another spec") as caught:
        making.refuse_other_plan(other, sites.FakeSite().each)
    assert "winlab destroy --lab ci" in caught.value.cure
