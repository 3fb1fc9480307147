"""The northbound database while others change it, and when it does not answer."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import plans
import pytest
from ovsdbapp.exceptions import TimeoutException

from winlab.adapters.overlay import writes
from winlab.adapters.overlay.ovn import Northbound
from winlab.design.render.topology import topology
from winlab.errors import HostError

TOPOLOGY = topology(plans.make(plans.KVM, "1-0-1"))


def test_a_change_that_is_not_confirmed_is_reported_in_short() -> None:
    class Write:
        def execute(self, **_: object) -> None:
            raise TimeoutException(commands="row " * 10_000, timeout=20, cause="Result queue is empty")

    api: Any = None
    write: Any = Write()
    with pytest.raises(HostError, match="does not answer") as caught:
        Northbound(api)._execute(write)
    assert "overloaded" in caught.value.why
    assert "row row" not in str(caught.value)


@pytest.mark.parametrize(
    "read",
    [
        lambda db: db.lab_plan("lab"),
        lambda db: db.lab_owner("lab"),
        lambda db: db.has(TOPOLOGY),
        lambda db: db.ports_up("lab"),
        lambda db: db.labs(),
        lambda db: db.described("lab"),
        lambda db: db.holder(TOPOLOGY),
        lambda db: db.pod_routes("lab"),
        lambda db: db.fault_records("lab"),
        lambda db: db.hypervisors(),
    ],
)
def test_rows_are_read_only_while_no_one_changes_them(read: Callable[[Northbound], object]) -> None:
    lock: Any = threading.RLock()
    asked = 0

    class Rows(dict[str, Any]):
        def values(self) -> Any:
            nonlocal asked
            asked += 1
            assert lock._is_owned()
            return super().values()

    tables = defaultdict(lambda: SimpleNamespace(rows=Rows(), columns=()))
    tables["Logical_Switch"].rows.clear()
    read(Northbound(SimpleNamespace(tables=tables, ovsdb_connection=SimpleNamespace(lock=lock))))
    assert asked


def test_those_who_follow_are_awaited_while_the_rows_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost clears all rows and reads them again, under the lock."""
    rows: dict[str, Any] = {}
    numbers = iter([3, 4])

    @contextmanager
    def lock() -> Iterator[None]:
        rows["one"] = SimpleNamespace(sb_cfg=4, hv_cfg=next(numbers))
        yield
        rows.clear()

    class Link:
        lock = property(lambda _: lock())

    api = SimpleNamespace(tables={"NB_Global": SimpleNamespace(rows=rows)}, ovsdb_connection=Link())
    monkeypatch.setattr(Northbound, "_execute", lambda *_: 4)
    Northbound(api).await_followers(60)
    assert list(numbers) == []


def test_a_database_that_northd_does_not_use_yet_is_reported() -> None:
    api: Any = SimpleNamespace(tables={"NB_Global": SimpleNamespace(rows={})})
    with pytest.raises(HostError, match="northd has not begun"):
        writes.Count(api).run_idl(None)
