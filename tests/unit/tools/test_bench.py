"""``make bench``, without measuring: medians, ratios, the record, the tables, the picture, and what /proc says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import plans
import pytest

from bench import api, chart, labs, many, processes, record, scale, stage, table
from bench.framework import MEASUREMENTS, Reading, collect
from bench.record import Missing, Record, Result, Series
from bench.stage import Ran, Stage
from winlab import run
from winlab.design.render.domain import domain_xml
from winlab.run import Result as Ended

HOST = {"processor": "Some CPU", "cores": "2 cores", "KVM": "no KVM: guests are emulated"}
SVG = "{http://www.w3.org/2000/svg}"


def found(*series: Series, missing: tuple[Missing, ...] = ()) -> Result:
    return Result("2026-01-02", "1.0", series, missing)


@pytest.fixture
def filled() -> Record:
    clones = (Series("clone: API answers", "s", (2.9, 2.5, 9.0)), Series("clone: machines run", "s", (0.7,)))
    memory = (Series("ten clones: memory", "MB", (6200.0,)), Series("one lab: memory", "MB", (2000.0,)))
    none = (Missing("VM runs: kcli", "it is not installed"),)
    return Record(
        HOST,
        {
            "create-cold": found(Series("create, cold", "s", (1900.0,))),
            "clone": found(*clones),
            "ten-clones": found(*memory),
            "one-vm": found(missing=none),
        },
    )


# -- readings


def test_readings_become_series_in_their_order() -> None:
    def work() -> Iterator[Reading | Missing]:
        for number in (3.0, 1.0, 2.0):
            yield Reading("b", number)
            yield Reading("a", number * 10, "MB")
        yield Missing("c", "it is not installed")

    said: list[str] = []
    result = collect(work(), said.append)
    assert result.series == (Series("b", "s", (3.0, 1.0, 2.0)), Series("a", "MB", (30.0, 10.0, 20.0)))
    assert result.missing == (Missing("c", "it is not installed"),)
    assert (said[0], said[-1]) == ("  b: 3.000 s", "  c: not measured: it is not installed")


@pytest.mark.parametrize(("values", "median"), [((5.0,), 5.0), ((3.0, 1.0, 2.0), 2.0), ((1.0, 9.0, 2.0, 4.0), 3.0)])
def test_the_median_is_the_value_in_the_middle(values: tuple[float, ...], median: float) -> None:
    assert Series("a", "s", values).median == median


def test_a_ratio_is_of_medians_and_needs_both(filled: Record) -> None:
    assert filled.ratio("ten clones: memory", "one lab: memory") == 3.1
    assert filled.ratio("clone: API answers", "clone: machines run") == pytest.approx(2.9 / 0.7)
    assert filled.ratio("clone: API answers", "nothing") is None
    assert filled.ratio("nothing", "clone: API answers") is None


def test_measurements_are_registered_by_name() -> None:
    one = MEASUREMENTS["create-cold"]
    assert (one.work, one.repetitions, one.cold) == (labs.create_cold, 1, True)
    assert [name for name, other in MEASUREMENTS.items() if other.cold] == ["create-cold"]


# -- the record


def test_a_record_is_read_as_it_was_written(filled: Record, tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    assert record.read(path) == Record()
    record.write(filled, path)
    assert record.read(path) == filled
    record.write(filled.having("status", found(Series("status", "s", (0.12345678,)))), path)
    status = record.read(path).series("status")
    assert status is not None
    assert status.values == (0.123,)


def test_a_new_result_replaces_the_old_one(filled: Record) -> None:
    now = filled.having("clone", found(Series("clone: API answers", "s", (1.0,))))
    assert now.series("clone: machines run") is None
    assert now.series("create, cold") is not None


def test_results_of_another_host_are_dropped(filled: Record) -> None:
    assert filled.on(dict(HOST)) is filled
    assert filled.on({**HOST, "cores": "4 cores"}) == Record({**HOST, "cores": "4 cores"})


# -- the tables


def row(text: str, begin: str) -> list[str]:
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_goals_have_what_was_measured(filled: Record) -> None:
    text = table.goals(filled)
    assert row(text, "A clone")[1:] == ["2.90 s", "yes"]
    assert row(text, "That takes")[1:] == ["0.00153", "yes"]
    assert row(text, "Ten clones")[1:] == ["3.10", "no"]
    assert row(text, "A reset")[1:] == ["not measured", "-"]


def test_goals_and_the_picture_name_series_that_are_measured() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (record.ROOT / "tools/bench").glob("*.py")]
    written = [name for source in sources for name in re.findall(r'Reading\(f?"([^"]+)"', source)]
    known = [re.sub(r"\\{.*?\\}", ".+", re.escape(name)) for name in written]
    names = {name for goal in table.GOALS for name in (goal.what, goal.over) if name} | set(table.PICTURE)
    assert [name for name in sorted(names) if not any(re.fullmatch(one, name) for one in known)] == []


def test_all_values_are_in_the_table(filled: Record) -> None:
    text = table.results(filled)
    assert "| processor | Some CPU |" in text
    assert row(text, "`clone` | clone: API")[2:] == ["2.90 s", "2.50 to 9.00", "3", "1.0, 2026-01-02"]
    assert row(text, "`one-vm`")[1:3] == ["VM runs: kcli", "not measured: it is not installed"]
    widths = {line.count("|") for line in text.split("\n\n")[1].splitlines()}
    assert widths == {7}


def test_without_a_run_the_page_says_so() -> None:
    assert table.results(Record()) == table.NONE
    assert "No run is recorded yet" in table.picture(Record())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.6951, "s", "0.70 s"), (12.34, "s", "12.3 s"), (1900.4, "MB", "1900 MB"), (3.1, "", "3.10")],
)
def test_values_have_three_digits(value: float, unit: str, text: str) -> None:
    assert table.shown(value, unit) == text


# -- the picture


def bars(text: str) -> list[float]:
    """The lengths of the bars."""
    drawn = ElementTree.fromstring(text).iter(f"{SVG}rect")
    return [float(one.get("width", "")) for one in drawn if one.get("fill") == chart.COLOURS["bar"]]


def test_bars_are_on_a_logarithmic_scale() -> None:
    text = chart.draw("Title", [("a", 1000.0), ("b", 10.0), ("c", 0.1)])
    assert chart.scale([1000.0, 10.0, 0.1]) == (-1, 3)
    long, half, least = bars(text)
    assert (long, half, least) == (chart.BARS, chart.BARS / 2, 1.0)
    assert [f">{one} s<" in text for one in ("0.1", "1", "10", "100", "1000")] == [True] * 5


def test_a_picture_of_one_value_or_none_can_be_drawn() -> None:
    assert chart.scale([1.0]) == (0, 1)
    assert len(bars(chart.draw("one", [("a", 1.0), ("b", 0.0)]))) == 1
    assert bars(chart.draw("none", [])) == []


def test_names_in_the_picture_are_escaped() -> None:
    root = ElementTree.fromstring(chart.draw("a < b & c", [("<x>", 2.0)]))
    assert root.findtext(f"{SVG}title") == "a < b & c"
    assert "<x>" in [one.text for one in root.iter(f"{SVG}text")]


def test_the_picture_has_the_measured_verbs(filled: Record) -> None:
    text = table.picture(filled)
    assert len(bars(text)) == 3
    assert "Some CPU, 2 cores, no KVM" in text
    assert re.search(r">2\.9 s<", text)


# -- processes


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    lines = {1: "guest=winlab-bench-ten-1.node-1,debug-threads=on", 2: "guest=winlab-bench-base.node-1", 3: "bash"}
    for pid, words in lines.items():
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_bytes(b"qemu\0-name\0" + words.encode() + b"\0")
        (folder / "smaps_rollup").write_text(
            f"00-ff ---p 00 [rollup]\nRss: 9 kB\nPss:   {pid * 1000} kB\nPss_Anon: 7 kB\n"
        )
        fields = " ".join(str(number) for number in range(3, 53))
        (folder / "stat").write_text(f"{pid} (CPU 0/KVM (x)) S {fields}\n")
    (tmp_path / "4").mkdir()  # it has just ended
    return tmp_path


def test_the_processes_of_labs_are_found(proc: Path) -> None:
    assert [one.name for one in processes.emulators("bench-ten-", proc)] == ["1"]
    assert [one.name for one in processes.emulators("bench-base.", proc)] == ["2"]
    assert processes.emulators("bench-te.", proc) == []


def test_memory_and_time_are_summed(proc: Path) -> None:
    two = [proc / "1", proc / "2"]
    assert processes.memory(two) == pytest.approx(3000 * 1024 / 1e6)
    assert processes.seconds(two) == 2 * (13 + 14) / processes.TICKS


# -- commands


def test_a_command_s_events_have_their_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ["Note: on the standard error", "{", '  "not": "an event"', "}"]
    for reaches in ("restored", "restored", "ready"):
        lines.append(json.dumps({"event": "StepDone", "reaches": reaches}))
    asked: list[Any] = []

    def stream(words: list[str], on_line: Callable[[str], None], **_more: Any) -> Ended:
        asked.extend(words)
        for line in lines:
            on_line(line)
        return Ended((), 0, "", "", 0.0)

    monkeypatch.setattr(run, "stream", stream)
    ran = Stage((), tmp_path / "work", print).winlab("reset", "bench")
    assert asked[1:] == ["-m", "winlab", "reset", "bench", "--events", "/dev/stderr"]
    assert ran.last("restored") == ran.events[1][0]
    assert ran.answered is None
    assert ran.seconds >= ran.events[-1][0]


def test_a_command_is_followed_until_its_api_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path] = []

    def until_ready(kubeconfig: Path, _over: threading.Event) -> float:
        asked.append(kubeconfig)
        return stage.time.monotonic()

    def stream(_words: list[str], on_line: Callable[[str], None], **_more: Any) -> None:
        on_line(json.dumps({"event": "RunStarted"}))
        on_line(json.dumps({"event": "RunStarted"}))

    monkeypatch.setattr(run, "stream", stream)
    monkeypatch.setattr(api, "until_ready", until_ready)
    ran = Stage((), tmp_path / "work", print).winlab("clone", follow="bench-copy")
    assert [path.parts[-2:] for path in asked] == [("bench-copy", "kubeconfig")]
    assert ran.answered is not None
    assert Ran().answered is None


def test_an_api_server_is_asked_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError(), False, True])

    def all_ready(_kubeconfig: Path) -> bool:
        one = next(answers)
        if isinstance(one, OSError):
            raise one
        return one

    monkeypatch.setattr(api, "_all_ready", all_ready)
    monkeypatch.setattr(api, "PAUSE", 0.0)
    assert api.until_ready(Path("kubeconfig"), threading.Event()) is not None
    over = threading.Event()
    over.set()
    assert api.until_ready(Path("kubeconfig"), over) is None


# -- a cold create


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a storage pool with the volumes of an image and of a lab."""
    folder = tmp_path / "pool"
    folder.mkdir()
    for name in ("base-debian-13-1.qcow2", "base-debian-13-1.qcow2.complete", "lab.node-1.disk.qcow2"):
        (folder / name).write_text("old")
    host = SimpleNamespace(pool=SimpleNamespace(folder=folder, refresh=lambda: None))
    monkeypatch.setattr(labs, "Site", lambda: SimpleNamespace(storage=lambda: nullcontext([host])))
    return folder


def contents(pool: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in pool.iterdir()}


def test_base_volumes_are_moved_aside_and_back(pool: Path) -> None:
    before = contents(pool)
    with labs._no_base_volumes():
        assert set(contents(pool)) == {"lab.node-1.disk.qcow2"}
        (pool / "base-debian-13-1.qcow2").write_text("new")
        (pool / "base-debian-13-2.qcow2").write_text("new")
    assert contents(pool) == before
    assert list(pool.parent.iterdir()) == [pool]


def test_base_volumes_come_back_after_a_run_that_was_killed(pool: Path) -> None:
    before = contents(pool)
    aside = pool.with_name("pool.bench-aside")
    aside.mkdir()
    (pool / "base-debian-13-1.qcow2").rename(aside / "base-debian-13-1.qcow2")
    with labs._no_base_volumes():
        pass
    assert contents(pool) == before


# -- many machines


def test_machines_of_the_tiny_image_boot_from_it() -> None:
    plan = many.tiny(plans.make(plans.TCG, "0-2-1", "workers.os=debian-13", lab="bench-many"))
    for node in plan.nodes:
        assert (node.volume("base").name, node.volume("disk").backing) == (many.BASE, many.BASE)
        root = ElementTree.fromstring(domain_xml(plan, node, "secret"))
        assert root.findtext("memory") == "128"
        assert root.find("os") is not None
        assert "firmware" not in root.find("os").attrib  # type: ignore[union-attr]
    assert len(many.HALT) == 512


def test_labs_on_many_hosts_share_neither_addresses_nor_more_hosts_than_they_use() -> None:
    made = [plan for plan, seconds in scale.plans(7, 3) if seconds >= 0]
    taken = [address for plan in made for address in plan.external_addresses]
    assert len(taken) == len(set(taken))
    assert {len({node.hypervisor for node in plan.nodes}) for plan in made} == {scale.USED}
    assert len({node.hypervisor for plan in made for node in plan.nodes}) == 7
    assert [len(plan.nodes) for plan in made] == [scale.NODES] * 3
