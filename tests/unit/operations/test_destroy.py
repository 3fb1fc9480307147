"""destroy: everything of a lab goes; what can't be removed is told, and the folder stays for a second try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from winlab import journal
from winlab.adapters import traces
from winlab.adapters.kube import kubeconfig
from winlab.adapters.vm import connection, domains
from winlab.errors import HostError, LabError, WinlabError
from winlab.events import Event, StepDone
from winlab.operations import destroy
from winlab.site import Site


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[WinlabError]:
    """A host without machines; what is put into the list can't be removed."""
    found: list[WinlabError] = []

    @contextmanager
    def connected(_uri: str) -> Iterator[None]:
        yield None

    def remove(lab: str, _conn: object, _overlay: object, _pool: object, gone: Callable[[str, str], None]) -> object:
        gone("network", lab)
        return list(found)

    monkeypatch.setattr(connection, "connected", connected)
    monkeypatch.setattr(domains, "machines", lambda *_: [])
    monkeypatch.setattr(traces, "remove", remove)
    return found


def test_the_folder_goes_last_and_is_told(problems: list[WinlabError]) -> None:
    site = Site()
    events: list[Event] = []
    site.folder("ci").write(site.folder("ci").journal, "{}")
    assert destroy.destroy("ci", site, events.append) == ["network ci", f"folder {site.folder('ci').path}"]
    assert not site.folder("ci").path.exists()
    assert len(events) == 2


def test_what_can_t_be_removed_is_told_and_the_folder_stays(
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
