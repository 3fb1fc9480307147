"""Pools of workers in one spec: how they are written, changed, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from winlab.design import spec
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import Pool, places
from winlab.errors import UsageError

MIXED = """\
workers:
  - os: windows-2022
  - name: win25
    os: windows-2025
    cpus: 4
  - name: lin
    os: debian-13
"""


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(MIXED)
    return str(path)


def refused(source: str, *changes: str, **more: object) -> str:
    with pytest.raises(UsageError) as caught:
        spec.load(source, changes, **more)  # type: ignore[arg-type]
    return " ".join(filter(None, (caught.value.what, caught.value.why, caught.value.cure)))


def field(made: Spec, name: str) -> dict[str, object]:
    return {pool.name: getattr(pool, name) for pool in made.pools}


def test_one_mapping_is_a_pool_called_node() -> None:
    assert [pool.name for pool in spec.load("1-2-1").pools] == ["node"]
    assert Spec.model_validate({"workers": None}).workers == (Pool(),)
    assert spec.load("1-1-1", ["workers.name=win"]).workers[0].name == "win"


def test_the_first_pool_is_called_node_unless_named(mixed: str) -> None:
    assert field(spec.load(mixed), "cpus") == {"node": 2, "win25": 4, "lin": 2}


def test_a_spec_survives_being_written_and_read(mixed: str) -> None:
    made = spec.load(mixed, ["linux_workers.count=2"])
    again = Spec.model_validate(made.model_dump(mode="json", exclude_defaults=True))
    assert again.model_dump() == made.model_dump()  # where a file's paths may lead is not written


def test_set_changes_every_pool_or_one(mixed: str) -> None:
    assert set(field(spec.load(mixed, ["workers.cpus=3"]), "cpus").values()) == {3}
    assert field(spec.load(mixed, ["workers.win25.cpus=3"]), "cpus") == {"node": 2, "win25": 3, "lin": 2}
    assert field(spec.load(mixed, ["workers.cpus=3", "workers.node.cpus=5"]), "cpus")["node"] == 5
    assert spec.load("1-1-1", ["workers.node.cpus=3"]).workers[0].cpus == 3


def test_set_of_a_windows_field_changes_only_windows_pools(mixed: str) -> None:
    assert field(spec.load(mixed, ["workers.golden=false"]), "golden") == {"node": False, "win25": False, "lin": True}
    made = spec.load(mixed, ["workers.golden=false", "workers.node.os=debian-13"])
    assert field(made, "golden") == {"node": True, "win25": False, "lin": True}
    assert "--set workers.lin.golden=false: workers.lin.golden: only Windows" in refused(
        mixed, "workers.lin.golden=false"
    )
    assert "only Windows workers have it" in refused(mixed, "workers.golden=false", "workers.os=debian-13")


def test_linux_workers_are_a_pool_called_linux() -> None:
    made = spec.load("1-1-1", ["linux_workers.count=2", "workers.linux.cpus=3", "workers.cpus=8"])
    assert field(made, "count") == {"node": 1, "linux": 2}
    assert field(made, "cpus") == {"node": 8, "linux": 3}
    assert (made.pools[1].memory, made.pools[1].disk) == (2048, 20480)
    assert [pool.name for pool in spec.load("1-1-1").pools] == ["node"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {os: debian-13}\n  - {cpus: 2}", "line 3: workers.2: each pool after the first needs its own name"),
        ("- {name: win}\n  - {name: win}", "line 3: workers.win.name: two pools are called 'win'"),
        ("- {}\n  - {name: node}", "line 3: workers.node.name: two pools are called 'node'"),
        ("- {}\n  - {name: controller}", "line 3: workers.controller.name: nodes can't be called 'controller-1'"),
        ("- {}\n  - {name: Win}", "nodes can't be called 'Win-1'"),
        ("- {}\n  - {name: thirteen-long}", "nodes can't be called 'thirteen-long-1'"),
        ("- {}\n  - {name: files}", "a pool can't be called 'files', because that is a field of pools"),
        ("- {}\n  - {name: linux}", "line 3: workers.linux.name: a pool called 'linux' runs Linux"),
        ("- {}\n  - {name: a, count: 16}", "line 3: workers.a.count: the pool 'a' can have 15 nodes at most"),
        (
            "- {}\n  -\n    name: a\n    memroy: 2GiB",
            "line 5: workers.a.memroy: there is no such field; did you mean 'memory'? Choose from apart",
        ),
        ("- {}\n  -\n    name: a\n    os: debian-13\n    bus: sata", "line 6: workers.a.bus: only Windows workers"),
        ("- {}\n  - 5", "line 3: workers.1: "),
        ("5", "line 1: workers: should be the fields of a pool, or a list of pools"),
    ],
)
def test_refused_pools_are_named_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"workers:\n  {text}\n")
    assert says in refused(str(path))


def test_linux_workers_need_their_name() -> None:
    changes = ("workers=[{name: linux, os: debian-13}]", "linux_workers.count=1")
    assert "there is a pool called 'linux' already" in refused("1-1-1", *changes)


def test_an_unknown_pool_is_refused(mixed: str) -> None:
    assert "there is no pool 'win19'. Choose one of: node, win25, lin." in refused(mixed, "workers.win19.cpus=3")
    assert "changes no field" in refused(mixed, "workers.win25=3")


def test_one_wrong_value_for_all_pools_is_one_problem(mixed: str) -> None:
    assert "(1 problem). --set workers.cpus=0: workers.cpus: " in refused(mixed, "workers.cpus=0")


@pytest.mark.parametrize("flags", [{"os": "windows-2019"}, {"iso": "own.iso"}])
def test_flags_for_one_pool_are_refused_with_several(mixed: str, flags: dict[str, str]) -> None:
    text = refused(mixed, **flags)
    assert "doesn't say which pool it is for: node, win25, lin" in text
    assert "--set workers.node." in text


def test_a_rehearsal_simulates_every_windows_pool(mixed: str) -> None:
    made = spec.load(mixed, rehearse=True)
    assert field(made, "os") == {"node": "windows-rehearsal", "win25": "windows-rehearsal-2025", "lin": "debian-13"}
    for change in ("workers.media=x.iso", "workers.win25.media=x.iso"):
        assert "brings its own media" in refused(mixed, change, rehearse=True)


def test_a_rehearsal_ignores_the_medium_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("workers: {os: windows-2025, media: own.iso}\n")
    (pool,) = spec.load(str(path), rehearse=True).workers
    assert (pool.os, pool.media) == ("windows-rehearsal-2025", None)


@pytest.mark.parametrize(
    ("asked", "played"),
    [
        (None, "windows-rehearsal"),
        ("windows-2019", "windows-rehearsal-2019"),
        ("windows-2022", "windows-rehearsal"),
        ("windows-2025", "windows-rehearsal-2025"),
        ("windows-rehearsal-2025", "windows-rehearsal-2025"),
    ],
)
def test_a_rehearsal_simulates_the_release_that_os_names(asked: str | None, played: str) -> None:
    (pool,) = spec.load("1-1-1", os=asked, rehearse=True).workers
    assert pool.os == played


def test_a_rehearsal_simulates_only_windows() -> None:
    assert "debian-13 is not Windows" in refused("1-1-1", os="debian-13", rehearse=True)
    assert "brings its own media" in refused("1-1-1", iso="own.iso", rehearse=True)


def test_each_pool_keeps_its_places() -> None:
    pools = [Pool(name=name, os="debian-13") for name in ("a", "linux", "b", "c")]
    given = places(pools)
    assert {name: (room[0], len(room)) for name, room in given.items()} == {
        "a": (101, 60),
        "linux": (51, 50),
        "b": (161, 15),
        "c": (177, 15),
    }
    taken = [place for room in given.values() for place in room]
    assert len(set(taken)) == len(taken)


def test_a_network_too_small_for_the_pools_is_refused(mixed: str) -> None:
    assert "too small for 1 nodes called 'win25'; they take addresses from the 161st on" in refused(
        mixed, "network.cidr=10.0.0.0/25"
    )
    many = ", ".join(f"{{name: p{number}, os: debian-13, count: 15}}" for number in range(7))
    assert "too small" in refused("1-1-1", f"workers=[{many}]")
    assert len(spec.load("1-1-1", [f"workers=[{many}]", "network.cidr=10.0.0.0/23"]).pools) == 7


def test_a_pool_in_python_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="only Windows workers have it"):
        Pool(os="debian-13", golden=False)
