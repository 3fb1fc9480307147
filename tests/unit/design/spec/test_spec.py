import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winlab.design import spec
from winlab.design.spec import time_zones
from winlab.design.spec.load import LONGEST
from winlab.errors import ExitCode, UsageError


def test_shorthand() -> None:
    made = spec.load("3-2-1")
    assert (made.controllers.count, made.workers[0].count, made.hypervisors) == (3, 2, 1)


def test_every_shipped_spec_is_valid_and_means_its_name() -> None:
    for name in spec.names():
        made = spec.load(name)
        if name[0].isdigit():
            assert name == f"{made.controllers.count}-{made.workers[0].count}-{made.hypervisors}"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("2-1-1", "controllers.count"),
        ("1-1-3", "hypervisors: 2 nodes can't use 3 hypervisors"),
        ("1-1-0", "hypervisors"),
        ("5-60-51", "hypervisors"),
        ("1-1", "no spec '1-1'"),
        ("nonsense", "no spec 'nonsense'"),
        ("./missing.yaml", "can't be read"),
        ("/dev/stdin", "can't be read"),
        ("/", "can't be read"),
        ("a/\0", "can't be read"),
    ],
)
def test_refused_sources(source: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load(source)
    assert says in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE


def test_problems_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("controllers:\n  count: 1\nworkers:\n  memroy: 2GiB\n  cpus: many\nnetwork:\n  cidr: 8.8.8.0/24\n")
    with pytest.raises(UsageError) as caught:
        spec.load(str(path))
    text = str(caught.value)
    assert "(3 problems)" in text
    assert (
        "line 4: workers.memroy: there is no such field; did you mean 'memory'? Choose from apart, bus, cluster, count"
        in text
    )
    assert "line 5: workers.cpus" in text
    assert "line 7: network.cidr: 8.8.8.0/24 should be a private" in text


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("controllers: [\n")
    with pytest.raises(UsageError, match="not YAML") as caught:
        spec.load(str(path))
    assert "line" in caught.value.why


def test_set_changes_any_field() -> None:
    made = spec.load("1-1-1", ["workers.memory=3GiB", "network.dns=[192.0.2.1]", "controllers.cpus=4"])
    assert (made.workers[0].memory, made.network.dns, made.controllers.cpus) == (3072, ("192.0.2.1",), 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("workers.cpus", "can't be understood"),
        ("workers.colour=red", "--set workers.colour=...: workers.colour: there is no such field"),
        ("workers.memory=lots", "'lots' is not a size"),
        ("workers.os=beos", "there is no image 'beos'"),
        ("controllers.os=windows-2022", "a controller runs Linux"),
        ("network.cidr=10.0.0.0/33", "network.cidr"),
        ("network.cidr=10.0.0.0/25", "too small"),
        ("controllers.count.x=1", "has no fields"),
    ],
)
def test_refused_changes(change: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load("1-60-1", [change])
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["UTC", "UTC-11", "W. Europe Standard Time", "Pacific Standard Time_dstoff"])
def test_time_zones_of_windows(name: str) -> None:
    assert spec.load("1-1-1", [f"workers.time_zone={name}"]).workers[0].time_zone == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Europe/Berlin", "is an IANA name; Windows calls this zone 'W. Europe Standard Time'"),
        ("Asia/Kolkata", "calls this zone 'India Standard Time'"),
        ("Asia/Calcutta", "calls this zone 'India Standard Time'"),
        ("Etc/UTC", "calls this zone 'UTC'"),
        ("Europe/Vienna", "Windows has its own names, such as UTC"),
        ("W. Europe Standrad Time", "did you mean 'W. Europe Standard Time'"),
        ("pacific standard time", "did you mean 'Pacific Standard Time'"),
        ("Coordinated Universal Time", "Windows has no time zone 'Coordinated Universal Time'"),
        ("x", "examples are UTC and 'W. Europe Standard Time'"),
        ("''", "Windows has no time zone ''"),
        ('"UTC\\n"', "Windows has no time zone 'UTC\\n'"),
    ],
)
def test_other_names_of_time_zones_are_refused(name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load("1-1-1", [f"workers.time_zone={name}"])
    assert f"--set workers.time_zone={name}: workers.time_zone: " in caught.value.why
    assert says in caught.value.why


def test_the_list_of_time_zones_is_complete() -> None:
    zones = time_zones.zones()
    assert len(zones) == 141
    assert all(name == name.strip() and name for name in zones)
    assert {name for name, iana in zones.items() if not iana} == {
        "Kamchatka Standard Time",
        "Mid-Atlantic Standard Time",
    }
    iana = [one for names in zones.values() for one in names]
    assert len(iana) == len(set(iana))
    assert time_zones.EXAMPLE in zones


def test_linux_workers_have_no_windows_fields() -> None:
    with pytest.raises(UsageError, match="not valid") as caught:
        spec.load("1-1-1", ["workers.os=debian-13", "workers.bus=sata"])
    assert "only Windows workers have it" in str(caught.value)


def test_paths_are_relative_to_the_file_or_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    path = tmp_path / "specs" / "lab.yaml"
    path.write_text("workers: {media: w.iso, drivers: ~/v.iso}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = spec.load(str(path), allow=["~"])
    assert made.workers[0].media == tmp_path / "specs" / "w.iso"
    assert made.workers[0].drivers == tmp_path / "home" / "v.iso"
    monkeypatch.chdir(tmp_path)
    assert spec.load("1-1-1", ["workers.media=w.iso"]).workers[0].media == tmp_path / "w.iso"


@given(st.text())
def test_any_text_is_a_spec_or_a_usage_error(source: str) -> None:
    with contextlib.suppress(UsageError):
        spec.load(source)


@given(st.text())
def test_any_change_is_accepted_or_refused(change: str) -> None:
    with contextlib.suppress(UsageError):
        spec.load("1-1-1", [change])


def test_a_spec_from_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("controllers: {count: 3}\n"))
    assert spec.load("-").controllers.count == 3
    monkeypatch.setattr("sys.stdin", io.StringIO("controllers: ["))
    with pytest.raises(UsageError, match="The spec '-' is not YAML"):
        spec.load("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("#" * (LONGEST + 1)))
    with pytest.raises(UsageError) as refused:
        spec.load("-")
    assert "characters" in refused.value.why


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("workers.memory=99999999999GiB", "workers.memory: should be at most 1024 GiB"),
        ("workers.cpus=0", "workers.cpus: should be at least 1"),
        ("network.cidr=banana", "network.cidr: should be written as 10.78.0.0/23"),
    ],
)
def test_a_value_that_is_refused_is_explained_in_the_users_units(change: str, problem: str) -> None:
    """ux D16, D30."""
    with pytest.raises(UsageError) as refused:
        spec.load("1-1-1", [change])
    assert refused.value.why.endswith(problem)
