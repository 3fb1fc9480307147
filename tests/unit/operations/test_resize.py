"""One node more or less: the recorded spec with another count; other cases are refused with a cure."""

from __future__ import annotations

from collections.abc import Callable

import placing
import plans
import pytest
import sites

from winlab.adapters.vm import resources
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError, NotFoundError, UsageError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import planning, recorded, resize
from winlab.site import Site


@pytest.fixture(autouse=True)
def _lab() -> None:
    spec = Spec.load("1-2-1", ["linux_workers.count=1"])
    recorded.write(LabFolder("lab"), planning.make(spec, "lab", plans.TCG, Quiet()))


def counts(spec: Spec) -> tuple[int, int]:
    return spec.workers[0].count, spec.linux_workers.count


def test_a_pool_grows() -> None:
    assert counts(resize.grown("lab", Site(), "", 1)) == (3, 1)
    assert counts(resize.grown("lab", Site(), "node", 2)) == (4, 1)
    assert counts(resize.grown("lab", Site(), "linux", 2)) == (2, 3)


def test_the_last_node_of_a_pool_goes() -> None:
    assert counts(resize.shrunk("lab", Site(), "node-2")) == (1, 1)
    assert counts(resize.shrunk("lab", Site(), "linux-1")) == (2, 0)


def test_a_lab_uses_no_more_hypervisors_than_it_has_nodes_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for source, node, left in (("1-1-2", "node-1", 1), ("1-2-3", "node-2", 2), ("1-3-2", "node-3", 2)):
        at = tuple(placing.host(f"hypervisor-{number}") for number in (1, 2, 3))
        monkeypatch.setattr(resources, "of_all", lambda *_, at=at: at)
        spec = Spec.load(source, ["workers.os=debian-13"])
        recorded.write(LabFolder("lab"), planning.make(spec, "lab", placing.SITE, Quiet(), site=sites.FakeSite()))
        shrunk = resize.shrunk("lab", Site(), node)
        assert (shrunk.hypervisors, shrunk.workers[0].count) == (left, spec.workers[0].count - 1)
        assert resize.grown("lab", Site(), "", 1).hypervisors == spec.hypervisors


def interrupted(spec: Spec) -> None:
    """A change into this spec has begun, and not ended."""
    recorded.begin(LabFolder("lab"), planning.make(spec, "lab", plans.TCG, Quiet()))


@pytest.mark.parametrize(
    "again", [lambda: resize.grown("lab", Site(), "", 1), lambda: resize.shrunk("lab", Site(), "node-2")]
)
def test_the_same_command_asks_for_the_same_after_it_was_interrupted(again: Callable[[], Spec]) -> None:
    first = again()
    interrupted(first)
    assert again().model_dump() == first.model_dump()
    with pytest.raises(ConflictError, match="was interrupted") as refused:
        resize.grown("lab", Site(), "linux", 1)
    assert "winlab apply --lab lab" in refused.value.cure


def test_decisions_of_winlab_for_the_lab_stay() -> None:
    spec = resize.shrunk("lab", Site(), "linux-1")
    plan = recorded.read(LabFolder("lab")).plan
    assert spec.kubernetes.version == plan.cluster.versions.kubernetes
    assert spec.network.cni == plan.cluster.profile


@pytest.mark.parametrize(
    ("node", "error", "cure"),
    [
        ("node-1", UsageError, "winlab node rebuild node-1"),
        ("controller-1", ConflictError, "winlab destroy"),
        ("node-9", NotFoundError, "node-1, node-2, linux-1"),
    ],
)
def test_nodes_that_can_t_be_removed(node: str, error: type[UsageError], cure: str) -> None:
    with pytest.raises(error) as caught:
        resize.shrunk("lab", Site(), node)
    assert cure in caught.value.cure


@pytest.mark.parametrize(
    ("pool", "count", "error"), [("other", 1, NotFoundError), ("node", 0, UsageError), ("node", 99, UsageError)]
)
def test_pools_that_can_t_grow(pool: str, count: int, error: type[UsageError]) -> None:
    with pytest.raises(error):
        resize.grown("lab", Site(), pool, count)
